"""Values of an inventory that would change the meaning of a command: refused, or carried to the host as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from deploy.states import bare, material
from flows_deploy.deployed import CheckoutProgram, Fleet, InstallCheckout, machine
from kakeya_ops.deploy.actions import Actions
from kakeya_ops.deploy.desired import make_desired
from kakeya_ops.deploy.material import program_folder_id
from kakeya_ops.errors import InputError
from kakeya_ops.inventory import parse_inventory
from kakeya_ops.remote.connect import connect

EVIL = "a b'$(touch evil)`touch evil`;touch evil;\"%s%n&<b>é=~\\"
"""A folder's name."""
VALUE = f"-x {EVIL}\n\t]]></string><key>evil</key>😀"
NAME = "vault"


def hostile(fleet: Fleet) -> None:
    """Let everything be named as badly as an inventory may."""
    (fleet.machines[NAME].mac.home / EVIL).mkdir()
    python = fleet.machines[NAME].mac.home / EVIL / "-c python"
    python.symlink_to(sys.executable)
    fleet.change_host(
        NAME,
        install_root=f"~/{EVIL}/root",
        python=f"~/{EVIL}/-c python",
        environment={"VALUE": VALUE, "_": "$HOME", "EMPTY": ""},
    )


def test_what_is_accepted_arrives_as_it_is(tmp_path: Path, tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "operator"))
    with machine(tmp_path, NAME) as vault:
        fleet = Fleet(tmp_path, tiny_llama, {NAME: vault}, {NAME: "cache", "head": "head"})
        hostile(fleet)
        fleet.program = HostileProgram()
        result = fleet.deploy(NAME)[NAME]
        assert result.verdict == "done", (result, fleet.notes)
        assert not fleet.plan(NAME).pending
        job = vault.mac.wait_until_running(fleet.places(NAME).label)
        assert job.arguments[0] == f"{vault.mac.home}/{EVIL}/root/programs/{folder(fleet)}/venv/bin/kakeya"
        found = psutil.Process(job.pid).environ()
        assert (found["VALUE"], found["EMPTY"]) == (VALUE, "")
        with fleet.hosts() as hosts:
            actions = Actions(fleet.inventory, hosts.asker, hosts.runner)
            plan = actions.plan(hosts.observe([NAME]), actions.undeploy(purge=True))
            assert fleet.apply(hosts, plan)[NAME].verdict == "done"
        assert not [path for path in tmp_path.rglob("evil*") if path.name != EVIL]
        assert sorted(path.name for path in (vault.mac.home / EVIL).iterdir()) == ["-c python", "root"]


def folder(fleet: Fleet) -> str:
    """The one program that is installed."""
    (only,) = Path(fleet.places(NAME).root, "programs").iterdir()
    return only.name


class HostileProgram(CheckoutProgram):
    """The checkout, in the folder for the given Python."""

    def steps(self, host: Any, places: Any, state: Any) -> Any:
        installed = program_folder_id(self.id, host.python)
        return () if installed in state.programs else (InstallCheckout(installed),)


REFUSED: dict[str, dict[str, Any]] = {
    "host; touch evil": {"name": "a;touch evil"},
    "host of an option": {"name": "-oProxyCommand=touch evil"},
    "host in capitals": {"name": "Allens"},
    "host with a line end": {"name": "a\n"},
    "fleet with a slash": {"fleet": {"name": "../x"}},
    "fleet with XML": {"fleet": {"name": "<b>"}},
    "relative root": {"host": {"install_root": "root"}},
    "root of another user": {"host": {"install_root": "~root/x"}},
    "root with a line end": {"host": {"install_root": "/a\nb"}},
    "python of an option": {"host": {"python": "-c"}},
    "python with NUL": {"host": {"python": "/a\0b"}},
    "a variable that is no name": {"host": {"environment": {"A=B;touch evil": "x"}}},
    "a variable that is no text": {"host": {"environment": {"A": 1}}},
    "key with a bell": {"fleet": {"key_file": "/a\x07"}},
    "model of an option": {"model": {"path": "--help"}},
    "address of an option": {"host": {"endpoints": [{"network": "n", "address": "-K evil", "port": 1}]}},
    "address with a URL": {"host": {"endpoints": [{"network": "n", "address": "x@y/z#", "port": 1}]}},
    "IPv6 zone with quotes": {"host": {"endpoints": [{"network": "n", "address": "fe80::1%\"\n", "port": 1}]}},
    "ssh host with a line end": {"host": {"ssh": {"host": "a\nProxyCommand touch evil"}}},
}  # fmt: skip


def document(name: str = NAME, **changes: Any) -> dict[str, Any]:
    host = {"role": "cache", "endpoints": [{"network": "n", "address": "127.0.0.1", "port": 7000}]}
    return {
        "fleet": {"name": "flows", **changes.get("fleet", {})},
        "model": {"path": "/m", **changes.get("model", {})},
        "hosts": {"head": {"role": "head", "api": {}}, name: {**host, **changes.get("host", {})}},
    }


@pytest.mark.parametrize("case", REFUSED)
def test_what_could_mean_more_is_refused_with_its_place(case: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_inventory(yaml.safe_dump(document(**REFUSED[case])).encode(), "inventory.yaml")
    assert "evil\n" not in caught.value.message


SSH: list[dict[str, str]] = [
    {"host": "-oProxyCommand=touch evil"},
    {"host": "a;touch evil"},
    {"host": "$(touch evil)"},
    {"host": "me@a"},
    {"user": "-l root"},
    {"user": "a b"},
    {"user": "%h$(touch evil)"},
]


@pytest.mark.parametrize("ssh", SSH, ids=str)
def test_an_ssh_target_that_could_mean_more_is_refused_before_ssh_sees_it(
    ssh: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inventory = parse_inventory(yaml.safe_dump(document(host={"ssh": ssh})).encode(), "inventory.yaml")
    with pytest.raises(InputError):
        connect(inventory.host(NAME))
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\r", "\x07", "\ufffe", "\ud800"])
def test_a_value_that_no_property_list_can_hold_is_refused_before_anything_is_done(character: str) -> None:
    inventory = parse_inventory(yaml.safe_dump(document()).encode(), "inventory.yaml")
    changed = inventory.host(NAME).model_copy(update={"environment": {"VALUE": f"a{character}b"}})
    with pytest.raises(InputError, match="which a property list cannot hold"):
        make_desired(inventory, changed, bare(NAME), material())
