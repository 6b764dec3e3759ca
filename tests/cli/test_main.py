from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kakeya_ops import __version__
from kakeya_ops.cli.context import app_context
from kakeya_ops.cli.main import RootGroup, app, hoist_global_options
from kakeya_ops.errors import ExitCode, Fault, InputError, InventoryError, KakeyaError, PeerUnreachable

HEAVY = ("mlx", "mlx_lm", "transformers", "tokenizers", "starlette", "fastapi", "uvicorn", "openai", "httpx", "numpy")
HEAVY += ("kakeya_ops.inventory", "yaml", "paramiko", "jinja2")
EXAMPLE = Path(__file__).parents[2] / "inventory.yaml"
RUNNER = CliRunner()


def kakeya(*words: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kakeya_ops.cli.main", *words], capture_output=True, text=True, timeout=60
    )


@pytest.fixture
def failing() -> typer.Typer:
    """A command line like ours whose one command raises `error`."""
    copy = typer.Typer(cls=RootGroup, pretty_exceptions_enable=False)
    copy.callback()(app.registered_callback.callback)  # type: ignore[union-attr, arg-type]

    @copy.command()
    def work(ctx: typer.Context) -> None:
        raise ERROR[0]

    return copy


ERROR: list[BaseException] = [KeyError()]


def run(command: typer.Typer, error: BaseException, *words: str) -> tuple[int, str, str]:
    ERROR[0] = error
    result = RUNNER.invoke(command, [*words, "work"])
    return result.exit_code, result.stdout, result.stderr


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom kakeya_ops.cli.main import app\n"
        "for words in ('', 'demo', 'verify remote-prefill', 'inventory show', 'serve', 'serve head', 'unknown'):\n"
        "    CliRunner().invoke(app, [*words.split(), '--help'])\n"
        f"print(sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_command_is_there() -> None:
    found = kakeya("--help")
    assert found.returncode == 0
    for name in ("demo", "inventory", "serve", "verify"):
        assert f" {name} " in found.stdout


def test_the_version_is_told() -> None:
    assert kakeya("--version").stdout == f"kakeya {__version__}\n"


def test_an_unknown_command_is_a_usage_error_with_a_suggestion() -> None:
    result = RUNNER.invoke(app, ["inventry"])
    assert result.exit_code == ExitCode.INPUT
    assert "; did you mean 'inventory'?" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("words", [["--nonsense"], ["verify"], ["verify", "remote-prefill", "--min-tokens", "0"], []])
def test_usage_errors_exit_with_2(words: list[str]) -> None:
    assert RUNNER.invoke(app, words).exit_code == ExitCode.INPUT


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("a"), 2), (PeerUnreachable("head", "gone"), 3), (KakeyaError("a"), 3)],
)
def test_an_error_is_a_sentence_and_its_exit_code(failing: typer.Typer, error: KakeyaError, code: int) -> None:
    found, out, err = run(failing, error)
    assert (found, out) == (code, "")
    assert err == f"error: {error.message}\n"


def test_a_hint_stands_on_its_own_line(failing: typer.Typer) -> None:
    assert run(failing, InputError("no key", hint="kakeya key new"))[2] == "error: no key\nhint: kakeya key new\n"


FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


@needs_full
@pytest.mark.parametrize("words", ["inventory schema", "--json inventory check", "--version", "--help"])
def test_an_output_that_is_full_is_no_bug(words: str) -> None:
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(EXAMPLE), *words.split()]
    with FULL.open("wb") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    message = "error: standard output cannot be written: No space left on device\n"
    assert (found.returncode, found.stderr) == (ExitCode.FAILED, message)


@needs_full
def test_messages_that_nobody_can_be_given_fail_nothing() -> None:
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", "/absent", "inventory", "check"]
    with FULL.open("wb") as full:
        found = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (ExitCode.INPUT, b"")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x/y"), 3, "error: /x/y cannot be written: No space left"),
        (OSError(errno.EROFS, "Read-only file system", "/x"), 3, "error: /x cannot be written: Read-only file system"),
        (OSError(errno.EBADF, "Bad file descriptor"), 70, "error: Kakeya failed in a way it should not"),
    ],
)
def test_a_disk_is_never_a_bug_of_ours(failing: typer.Typer, error: OSError, code: int, sentence: str) -> None:
    found, out, err = run(failing, error)
    assert (found, out) == (code, "")
    assert err.startswith(sentence)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("a", hint="b"), {"kind": "InputError", "message": "a", "hint": "b", "exit_code": 2}),
        (
            PeerUnreachable("head", "gone"),
            {"kind": "PeerUnreachable", "message": "head: gone", "hint": None, "exit_code": 3},
        ),
        (
            InventoryError("f.yaml", (Fault("a", 1, "is missing"),)),
            {
                "kind": "InventoryError",
                "message": "f.yaml has 1 fault",
                "hint": None,
                "exit_code": 2,
                "file": "f.yaml",
                "faults": [{"path": "a", "line": 1, "message": "is missing"}],
            },
        ),
    ],
)
def test_with_json_an_error_is_the_document(
    failing: typer.Typer, error: KakeyaError, expected: dict[str, object]
) -> None:
    code, out, err = run(failing, error, "--json")
    assert json.loads(out) == {"error": expected}
    assert code == expected["exit_code"]
    assert err.startswith(f"error: {error.message}\n")


def test_with_json_a_bug_is_a_document_too(failing: typer.Typer) -> None:
    code, out, err = run(failing, ZeroDivisionError("by zero"), "--json")
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"], code) == ("ZeroDivisionError", 70, 70)
    assert f"error: {error['message']}\n" in err


@pytest.mark.parametrize(
    "words",
    [
        "--json",
        "--json nonsense",
        "--json --nonsense",
        "inventory show a b --json",
        "verify --json",
        "verify remote-prefill --min-tokens 0 --json",
        "demo --port x --json",
        "key --json nonsense",
    ],
)
def test_with_json_a_usage_error_is_a_document(words: str) -> None:
    result = RUNNER.invoke(app, words.split())
    assert result.exit_code == ExitCode.INPUT
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["exit_code"]) == ("UsageError", 2)
    assert error["message"]
    assert result.stderr.startswith(f"error: {error['message']}\nhint: ")


@pytest.mark.parametrize(
    "words",
    [
        "inventory show",
        "serve worker",
        "verify remote-prefill",
        "status",
        "memory",
        "explain 0123",
        "render head",
        "deploy all --check",
        "logs head",
        "key new",
        "key rotate --yes",
        "lock show head",
    ],
)
def test_every_command_has_its_error_as_a_document(words: str, tmp_path: Path) -> None:
    absent = tmp_path / "absent.yaml"
    result = RUNNER.invoke(app, ["--json", "--inventory", str(absent), *words.split()])
    error = json.loads(result.stdout)["error"]
    assert (error["exit_code"], result.exit_code) == (2, 2)
    assert str(absent) in error["message"]


def test_a_word_after_the_dashes_is_not_the_option() -> None:
    result = RUNNER.invoke(app, ["nonsense", "--", "--json"])
    assert (result.exit_code, result.stdout) == (ExitCode.INPUT, "")


def test_every_fault_of_an_inventory_is_told_with_its_line(failing: typer.Typer) -> None:
    faults = (Fault("hosts.a.role", 12, "is missing"), Fault("", None, "is empty"))
    code, _, err = run(failing, InventoryError("f.yaml", faults))
    assert code == ExitCode.INPUT
    assert err == "error: f.yaml has 2 faults\n  f.yaml:12: hosts.a.role: is missing\n  f.yaml: is empty\n"


def test_a_bug_is_one_line_and_how_to_report_it(failing: typer.Typer) -> None:
    code, out, err = run(failing, ZeroDivisionError("by\nzero"))
    assert (code, out) == (ExitCode.BUG, "")
    assert err.splitlines()[0] == "error: Kakeya failed in a way it should not: ZeroDivisionError: by"
    assert "Traceback" not in err
    assert "-vv" in err


def test_a_traceback_needs_vv(failing: typer.Typer) -> None:
    for error, code in ((ZeroDivisionError(), 70), (InputError("a"), 2)):
        assert "Traceback" not in run(failing, error, "-v")[2]
        found, _, err = run(failing, error, "-vv")
        assert found == code
        assert "Traceback (most recent call last)" in err


def test_an_interrupt_is_130_without_a_word(failing: typer.Typer) -> None:
    assert run(failing, KeyboardInterrupt()) == (ExitCode.INTERRUPTED, "", "")


def test_an_exit_code_of_a_command_stays(failing: typer.Typer) -> None:
    assert run(failing, typer.Exit(ExitCode.NO))[0] == ExitCode.NO


def test_a_reader_that_went_away_is_no_error() -> None:
    words = [sys.executable, "-m", "kakeya_ops.cli.main", "inventory", "schema"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""


def test_a_terminal_that_knows_few_characters_is_no_error(tmp_path: Path) -> None:
    path = shutil.copy(Path(__file__).parents[2] / "inventory.yaml", tmp_path / "größe.yaml")
    words = [sys.executable, "-m", "kakeya_ops.cli.main", "inventory", "check", "--inventory", str(path)]
    found = subprocess.run(words, capture_output=True, env={"PYTHONIOENCODING": "ascii"}, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    assert b"gr??e.yaml is valid: head" in found.stdout


def test_global_options_are_given_to_the_command() -> None:
    seen = []
    copy = typer.Typer(cls=RootGroup)
    copy.callback()(app.registered_callback.callback)  # type: ignore[union-attr, arg-type]

    @copy.command()
    def work(ctx: typer.Context, value: str = "") -> None:
        seen.append((app_context(ctx), value))

    words = ["work", "--json", "--value", "x", "-v", "--inventory", "a.yaml", "-v", "--no-color"]
    result = RUNNER.invoke(copy, words, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    ((context, value),) = seen
    assert (context.inventory_path, context.json, context.verbose, value) == (Path("a.yaml"), True, 2, "x")
    assert context.printer.json


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        ([], []),
        (["show", "--json"], ["--json", "show"]),
        (["show", "--inventory", "f", "h"], ["--inventory", "f", "show", "h"]),
        (["show", "--inventory=f"], ["--inventory=f", "show"]),
        (["show", "--inventory"], ["--inventory", "show"]),
        (["run", "--", "--json"], ["run", "--", "--json"]),
    ],
)
def test_global_options_move_to_the_front(given_words: list[str], expected: list[str]) -> None:
    assert hoist_global_options(given_words) == expected


@given(st.lists(st.sampled_from(["--json", "-v", "--inventory", "--", "a", "--b", "--inventory=c"])))
def test_hoisting_loses_no_word_and_does_nothing_twice(words: list[str]) -> None:
    hoisted = hoist_global_options(words)
    assert sorted(hoisted) == sorted(words)
    if words and words[-1] != "--inventory":
        assert hoist_global_options(hoisted) == hoisted
