"""What a shell is offered, by the protocol that it asks with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from kakeya_ops.bench.targets import KINDS
from kakeya_ops.cli.main import app
from kakeya_ops.drill.catalogue import CATALOGUE
from kakeya_ops.runbook import list_pages

EXAMPLE = Path(__file__).parents[2] / "inventory.yaml"
ROOT = get_command(app)
HOSTS = ["head", "allens"]
Offered = Callable[..., list[str]]
FOREIGN = ("mlx", "mlx_lm", "transformers", "numpy", "paramiko", "httpx", "starlette", "zeroconf")
WATCHING = f"""
import sys
touched = []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        touched.append(event)
sys.addaudithook(watch)
sys.argv = ["kakeya"]
from kakeya_ops.cli.start import run
try:
    run()
finally:
    print("loaded", sorted(set(sys.modules) & set({FOREIGN!r})), "touched", touched)
"""


def asked(line: str, inventory: Path | None = EXAMPLE) -> dict[str, str]:
    """The environment in which bash asks what may come at the end of `line`."""
    words = line.split(" ")
    named = {} if inventory is None else {"KAKEYA_INVENTORY": str(inventory)}
    return named | {
        "_KAKEYA_COMPLETE": "complete_bash",
        "COMP_WORDS": "\n".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }


@pytest.fixture
def offered(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Offered:
    """What is offered at the end of a line, where ``$KAKEYA_INVENTORY`` is the inventory that is given."""

    def ask(line: str, inventory: Path | None = EXAMPLE) -> list[str]:
        monkeypatch.delenv("KAKEYA_INVENTORY", raising=False)
        for name, value in asked(line, inventory).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            ROOT.main([], prog_name="kakeya")
        out, err = capsys.readouterr()
        assert (ended.value.code or 0, err) == (0, "")
        return out.split()

    return ask


def test_commands_are_offered(offered: Offered) -> None:
    assert offered("kakeya st") == ["start", "stop", "status"]
    assert offered("kakeya key r") == ["rotate"]
    assert offered("kakeya verify r") == ["remote-prefill"]


def test_options_are_offered_with_those_that_stand_anywhere(offered: Offered) -> None:
    assert {"--watch", "--no-ssh", "--json", "--inventory"} <= set(offered("kakeya status --"))
    assert "--install-completion" not in offered("kakeya status --")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kakeya deploy ", [*HOSTS, "workers", "all"]),
        ("kakeya deploy head wo", ["workers"]),
        ("kakeya deploy head ", ["allens", "workers", "all"]),
        ("kakeya memory allens --role ", ["head", "worker", "cache"]),
        ("kakeya doctor a", ["allens", "all"]),
        ("kakeya restart w", ["workers"]),
        ("kakeya logs ", HOSTS),
        ("kakeya render h", ["head"]),
        ("kakeya lock break ", HOSTS),
        ("kakeya inventory show ", HOSTS),
        ("kakeya serve head ", ["head"]),
        ("kakeya serve worker ", ["allens"]),
        ("kakeya verify remote-prefill --worker ", ["allens"]),
        ("kakeya bench --worker ", ["allens"]),
        ("kakeya drill --worker ", ["allens"]),
        ("kakeya runbook worker-down --host ", HOSTS),
        ("kakeya runbook ", [page.name for page in list_pages()]),
        ("kakeya drill --only ", [kind.name for kind in CATALOGUE]),
        ("kakeya bench --expect ", list(KINDS)),
    ],
)
def test_names_are_offered(line: str, expected: list[str], offered: Offered) -> None:
    assert offered(line) == expected


OTHER = "hosts:\n  attic: {role: head}\n  cellar: {role: worker, odd: 1}\ngroups: {low: [cellar, gone]}\n"


def test_the_inventory_is_the_one_that_the_command_would_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: Offered
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(OTHER)
    names = ["attic", "cellar", "low", "all"]
    assert offered("kakeya deploy ", other) == names, "also one that has faults"
    assert offered(f"kakeya --inventory {other} deploy ") == names
    assert offered(f"kakeya deploy --inventory {other} ") == names
    assert offered(f"kakeya deploy --inventory={other} ") == names
    assert offered(f"kakeya --inventory = {other} deploy ") == names, "as bash takes it apart"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert offered("kakeya --inventory ~/other.yaml deploy ") == names, "as it was typed"
    other.rename(tmp_path / "inventory.yaml")
    monkeypatch.chdir(tmp_path)
    assert offered("kakeya deploy ", None) == names


@pytest.mark.parametrize("content", [None, b"", b"hosts: [", b"- 1", b"hosts: 3", b"\xff\xfe\x00", b"hosts: {1: {}}"])
def test_without_an_inventory_that_can_be_read_nothing_is_said(
    tmp_path: Path, content: bytes | None, offered: Offered
) -> None:
    path = tmp_path / "inventory.yaml"
    if content is not None:
        path.write_bytes(content)
    assert offered("kakeya deploy ", path) == ["all"]
    assert offered("kakeya logs ", path) == []


def test_nothing_is_offered_that_a_shell_could_carry_out(tmp_path: Path, offered: Offered) -> None:
    path = tmp_path / "inventory.yaml"
    hosts = {r"x\$(touch pwned)": {"role": "worker"}, "a`b": {}, "c\nd": {}, "mini": {"role": r"\$(touch pwned)"}}
    path.write_text(yaml.safe_dump({"hosts": hosts, "groups": {"g;h": ["mini"]}}), encoding="utf-8")
    assert offered("kakeya deploy ", path) == ["mini", "all"]
    assert offered("kakeya logs ", path) == ["mini"]


def test_a_pipe_is_not_waited_for(tmp_path: Path, offered: Offered) -> None:
    os.mkfifo(path := tmp_path / "pipe")
    assert offered("kakeya logs ", path) == []


@pytest.mark.parametrize(
    "line",
    [
        "kakeya nonsense ",
        "kakeya --json nonsense ",
        "kakeya --version ",
        "kakeya --nonsense ",
        "kakeya bench --rounds x ",
        "kakeya demo --port ",
        "kakeya status --inventory ",
        "kakeya explain ",
        "kakeya 'un",
    ],
)
def test_whatever_is_typed_nothing_goes_wrong(line: str, offered: Offered) -> None:
    assert "error" not in " ".join(offered(line))


@pytest.mark.parametrize("question", ["complete_zsh", "complete_fish", "complete_unheard-of", "nonsense"])
def test_other_shells_are_answered_or_get_nothing(question: str) -> None:
    environment = {
        "_KAKEYA_COMPLETE": question,
        "_TYPER_COMPLETE_ARGS": "kakeya logs ",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "KAKEYA_INVENTORY": str(EXAMPLE),
    }
    result = CliRunner().invoke(app, [], prog_name="kakeya", env=environment)
    if question in ("complete_zsh", "complete_fish"):
        assert (result.exit_code, result.stderr) == (0, "")
        assert all(host in result.stdout for host in HOSTS)


@pytest.mark.parametrize("line", ["kakeya deploy ", "kakeya runbook ", "kakeya drill --only "])
def test_the_program_itself_loads_no_engine_and_touches_no_network(line: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", WATCHING],
        env=os.environ | asked(line),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stderr) == (0, "")
    *offers, told = found.stdout.splitlines()
    assert len(offers) > 1
    assert told == "loaded [] touched []"


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_what_is_installed_completes_in_a_real_shell(tmp_path: Path) -> None:
    command = tmp_path / "kakeya"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m kakeya_ops.cli.start "$@"\n')
    command.chmod(0o755)
    script = (
        "kakeya --install-completion; . ~/.bashrc; COMP_WORDS=(kakeya logs a); COMP_CWORD=2;"
        ' _kakeya_completion kakeya; echo "offered: ${COMPREPLY[*]}"'
    )
    environment = {
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "KAKEYA_INVENTORY": str(EXAMPLE),
        "PYTHONPATH": str(EXAMPLE.parent),
    }
    found = subprocess.run(
        ["bash", "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "bash completion installed in" in found.stdout, found.stderr
    assert found.stdout.splitlines()[-1] == "offered: allens"
