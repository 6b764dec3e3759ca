from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {"type": "linear", "factor": 2.0},
    "transformers_version": "5.0",
    "_name_or_path": "somewhere/else",
}

MakeModel = Callable[..., Path]


def write_model(path: Path, config: dict[str, Any] | None = None, shards: int = 1) -> Path:
    """A small model directory with real safetensors, a tokenizer and a chat template."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(CONFIG if config is None else config))
    names = (
        [f"model-{n + 1:05}-of-{shards:05}.safetensors" for n in range(shards)] if shards > 1 else ["model.safetensors"]
    )
    for seed, name in enumerate(names):
        save_file({f"layer{seed}": np.arange(64, dtype=np.float32) + seed}, path / name, metadata={"format": "mlx"})
    if shards > 1:
        index = {"weight_map": {f"layer{seed}": name for seed, name in enumerate(names)}}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "chat_template": "{{ messages }}"}))
    return path


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Make a model directory: ``make_model(name="m", config=None, shards=1)``."""
    return lambda name="m", config=None, shards=1: write_model(tmp_path / name, config, shards)
