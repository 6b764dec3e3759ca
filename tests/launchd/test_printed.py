from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.launchd.printed import ServiceState, parse_print, parse_print_disabled
from mac.printing import disabled_text, service_text
from mac.state import Job, MacState

LABEL = "dev.kakeya.home.allens"


def printed(*, noise: bool = True, profile: str = "modern", plist: dict[str, Any] | None = None, **job: Any) -> str:
    """What launchctl prints for a service."""
    defaults = {"Label": LABEL, "ProgramArguments": ["/usr/bin/true"], "KeepAlive": True}
    made = Job(label=LABEL, domain="gui/501", path="/Users/a b/x.plist", plist={**defaults, **(plist or {})}, **job)
    return service_text(MacState(print_noise=noise, profile=profile), made)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("profile", ["modern", "catalina"])
def test_a_running_service(noise: bool, profile: str) -> None:
    plist = {"ProgramArguments": ["/opt/k e/kakeya", "--x", ""], "EnvironmentVariables": {"A": "1 => 2", "B": ""}}
    state = parse_print(printed(noise=noise, profile=profile, plist=plist, state="running", pid=123, runs=3))
    assert (state.state, state.pid, state.running, state.stopping) == ("running", 123, True, False)
    assert (state.path, state.program) == ("/Users/a b/x.plist", "/opt/k e/kakeya")
    assert state.program_arguments == ("/opt/k e/kakeya", "--x", "")
    assert state.environment == {"A": "1 => 2", "B": "", "XPC_SERVICE_NAME": LABEL}
    assert (state.runs, state.last_exit, state.last_exit_code) == (3, "(never exited)", None)


@pytest.mark.parametrize(
    ("last_exit", "code"), [("0", 0), ("1", 1), ("78: EX_CONFIG", 78), ("(never exited)", None), ("-9", -9)]
)
def test_the_last_exit(last_exit: str, code: int | None) -> None:
    assert parse_print(printed(last_exit=last_exit)).last_exit_code == code


def test_a_service_that_cannot_run() -> None:
    text = printed(state="spawn scheduled", last_signal="Killed: 9", last_exit_reason="OS_REASON_CODESIGNING")
    state = parse_print(text)
    assert (state.state, state.running, state.pid) == ("spawn scheduled", False, None)
    assert (state.last_signal, state.last_exit_reason) == ("Killed: 9", "OS_REASON_CODESIGNING")


@pytest.mark.parametrize("pid", [None, 7])
def test_a_service_that_goes_does_not_run(pid: int | None) -> None:
    state = parse_print(printed(state="SIGTERMed", pid=pid))
    assert (state.running, state.stopping) == (False, True)


TRAPS = [
    "two\nlines",
    "}",
    "a\n}\n\tpid = 99\n}",
    "a\n\t}\n\tpid = 99",
    "a\n\t}\n\truns = 4\n\tpid = 99\n\tstate = running\n\tlast exit code = 7",
    "\tstate = running",
    "a\n\targuments = {\n\t\tb\n\t}",
]


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("place", ["argument", "variable"])
def test_values_cannot_pass_for_launchds_own_fields(trap: str, place: str) -> None:
    plist: dict[str, Any] = {"ProgramArguments": ["/bin/sh", "-c", trap, "last"]}
    if place == "variable":
        plist = {"EnvironmentVariables": {"TRAP": trap}}
    state = parse_print(printed(plist=plist, state="not running", runs=2, last_exit="3"))
    assert (state.state, state.pid, state.runs, state.last_exit) == ("not running", None, 2, "3")
    running = parse_print(printed(plist=plist, state="running", pid=12))
    assert (running.pid, running.running) == (12, True)


text_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(st.lists(text_values.filter(lambda value: "\n\t}" not in value), min_size=1), st.integers(1, 99999))
def test_a_service_was_loaded_with_its_arguments_and_no_others(arguments: list[str], pid: int) -> None:
    argv = ["/bin/echo", *arguments]
    state = parse_print(printed(plist={"ProgramArguments": argv}, state="running", pid=pid))
    assert state.loaded_with(argv)
    assert not state.loaded_with([*argv, "more"])
    assert not state.loaded_with(argv[:-1])
    assert state.pid == pid


@given(st.lists(text_values.filter(lambda value: "\n" not in value), min_size=1))
def test_arguments_of_one_line_are_told_apart(arguments: list[str]) -> None:
    assert parse_print(printed(plist={"ProgramArguments": arguments})).program_arguments == tuple(arguments)


@given(st.text(), st.integers(0, 400))
def test_nothing_that_is_printed_can_break_it(noise: str, length: int) -> None:
    whole = printed(state="running", pid=5)
    assert isinstance(parse_print(noise), ServiceState)
    assert parse_print(noise + whole[:length]).pid is None
    parse_print_disabled(noise + whole)


def test_fields_may_be_missing() -> None:
    assert parse_print("") == ServiceState()
    state = parse_print("gui/501/x = {\n\tstate = waiting\n\tpid = 8\n}\n")
    assert (state.state, state.pid, state.program_arguments) == ("waiting", 8, ())


def test_the_environment_is_not_shown() -> None:
    state = parse_print(printed(plist={"EnvironmentVariables": {"TOKEN": "abc-secret"}}))
    assert state.environment["TOKEN"] == "abc-secret"
    assert "abc-secret" not in repr(state)


@pytest.mark.parametrize("profile", ["modern", "catalina"])
def test_disabled_labels(profile: str) -> None:
    disabled = {"dev.a": True, "dev.b": False, 'odd "label" => true': True}
    assert parse_print_disabled(disabled_text(MacState(profile=profile, disabled=disabled))) == disabled


def test_only_the_block_of_disabled_labels_is_read() -> None:
    text = '\tdisabled services = {\n\t\t"a.b" => true\n\t}\n\tothers = {\n\t\t"c.d" => true\n\t}\n'
    assert parse_print_disabled(text) == {"a.b": True}
    assert parse_print_disabled("") == {}
