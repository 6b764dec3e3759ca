"""Small models, and what copying them to a host takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import save_file

from deploy.bare_host import found_files, make_state
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.model_sync import ModelCopy, read_model
from kakeya_ops.inventory import Inventory, parse_inventory
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.openssh_runner import OpenSshRunner
from kakeya_ops.remote.paramiko_runner import ParamikoRunner
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import HOST, SshServer

MEBIBYTE = 2**20
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def write_model(folder: Path, seed: int = 0, values: int = MEBIBYTE) -> Path:
    """A model directory with two shards of `values` bytes and what belongs to them."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    for number, name in enumerate(SHARDS):
        save_file({f"layer{number}": random.integers(0, 256, values, dtype=np.uint8)}, folder / name)
    weights = {"weight_map": {f"layer{number}": name for number, name in enumerate(SHARDS)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(weights))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "seed": seed}))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "additional_chat_templates").mkdir(exist_ok=True)
    (folder / "additional_chat_templates/tools.jinja").write_text("{{ tools }}")
    (folder / "README with spaces.md").write_text("hello")
    return folder


def open_ssh(server: SshServer, port: int | None = None, kind: str = "paramiko") -> OpenSshRunner | ParamikoRunner:
    config = server.write_config(Port=port or server.port, HostKeyAlias=f"[{HOST}]:{server.port}")
    ssh = resolve(SshTarget("mac", config_file=config))
    return OpenSshRunner("allens", ssh) if kind == "openssh" else ParamikoRunner("allens", ssh, None)


def inventory_for(source: Path, **model: Any) -> Inventory:
    document = {
        "fleet": {"name": "pair"},
        "model": {"id": "tiny", "path": str(source), **model},
        "hosts": {"head": {"role": "head", "api": {}}},
    }
    return parse_inventory(yaml.safe_dump(document).encode(), "test.yaml")


def read(source: Path, **model: Any) -> ModelCopy:
    return read_model(inventory_for(source, **{"sync": True, **model}))


def observed(context: HostContext, **facts: Any) -> HostState:
    """The host as it would be observed now."""
    folder = Path(context.places.model)
    record = Path(context.places.root) / "model.json"
    model = found_files(folder, record.read_bytes() if record.exists() else None) if folder.is_dir() else None
    return make_state(Path(context.places.home), **{"model": model, **facts})


def sync(context: HostContext, copy: ModelCopy) -> None:
    for step in copy.steps(context.host, context.places, observed(context)):
        step.apply(context)


def visible(folder: Path) -> dict[str, bytes]:
    """What a folder holds, without what is hidden."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    relative = {path.relative_to(folder): path for path in paths}
    return {str(name): path.read_bytes() for name, path in relative.items() if not name.parts[0].startswith(".")}


__all__ = ["MEBIBYTE", "SHARDS", "observed", "open_ssh", "read", "sync", "visible", "write_model"]
