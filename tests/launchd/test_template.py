from __future__ import annotations

import plistlib
import shutil
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kakeya_ops
from kakeya_ops.errors import EnvironmentFault, InputError
from kakeya_ops.launchd import template
from kakeya_ops.launchd.domain import Domain, Service
from kakeya_ops.launchd.launchctl import bootstrap, print_service
from kakeya_ops.launchd.printed import parse_print
from kakeya_ops.launchd.template import ServiceValues, find_templates, render_plist
from kakeya_ops.serving.draining import DRAIN_SECONDS
from mac.host import MacHost

LABEL = "dev.kakeya.home.allens"
HOME = "/Users/fluffy/.kakeya"
VALUES = ServiceValues(
    label=LABEL,
    domain="gui",
    arguments=(f"{HOME}/current/venv/bin/kakeya", "serve", "worker", "allens"),
    working_directory=HOME,
    stdout_path=f"{HOME}/logs/allens.log",
    stderr_path=f"{HOME}/logs/allens.log",
    drain_seconds=DRAIN_SECONDS,
)


def rendered(**values: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = plistlib.loads(render_plist(replace(VALUES, **values)))
    return parsed


def test_every_key_that_a_service_gets() -> None:
    assert rendered(environment={"B": "2", "A": "1"}) == {
        "Label": LABEL,
        "ProgramArguments": [f"{HOME}/current/venv/bin/kakeya", "serve", "worker", "allens"],
        "EnvironmentVariables": {"A": "1", "B": "2"},
        "WorkingDirectory": HOME,
        "StandardOutPath": f"{HOME}/logs/allens.log",
        "StandardErrorPath": f"{HOME}/logs/allens.log",
        "LimitLoadToSessionType": "Aqua",
        "ProcessType": "Interactive",
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": 20,
        "SoftResourceLimits": {"NumberOfFiles": 8192},
        "Umask": 0o077,
    }


def test_launchd_waits_longer_than_the_server() -> None:
    assert rendered()["ExitTimeOut"] > DRAIN_SECONDS
    assert rendered(drain_seconds=300)["ExitTimeOut"] > 300


def test_the_session_is_that_of_the_domain() -> None:
    assert rendered(domain="user")["LimitLoadToSessionType"] == "Background"


def test_sleep_is_prevented_only_where_it_is_asked_for() -> None:
    awake = rendered(prevent_sleep=True)["ProgramArguments"]
    assert awake == ["/usr/bin/caffeinate", "-i", *VALUES.arguments]
    assert replace(VALUES, prevent_sleep=True).program_arguments == tuple(awake)


def test_equal_values_make_equal_bytes() -> None:
    one, other = {"B": "2", "A": "1"}, {"A": "1", "B": "2"}
    assert render_plist(replace(VALUES, environment=one)) == render_plist(replace(VALUES, environment=other))
    assert render_plist(VALUES).startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n')
    assert b"{" not in render_plist(VALUES)


HOSTILE = [
    "]]>",
    "a & b",
    "&amp;",
    "</string><string>--api-key",
    "\"'`$(id)",
    "two\nlines\n",
    "  blanks\t",
    "{{ 7 * 7 }}{% raw %}",
    "<!-- -->",
    "ünïcödé 蛍 🦊",
    "",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_stay_what_they_are(value: str) -> None:
    arguments = (*VALUES.arguments, value)
    parsed = rendered(arguments=arguments, environment={"VALUE": value})
    assert parsed["ProgramArguments"] == list(arguments)
    assert parsed["EnvironmentVariables"] == {"VALUE": value}
    assert parsed.keys() == rendered().keys()


@given(st.text(max_size=40))
def test_any_text_is_carried_exactly_or_refused(value: str) -> None:
    try:
        values = replace(VALUES, arguments=(*VALUES.arguments, value))
    except InputError:
        assert any(
            character < " " or ord(character) in range(0xD800, 0xE000) or ord(character) >= 0xFFFE
            for character in value
        )
        return
    assert plistlib.loads(render_plist(values))["ProgramArguments"][-1] == value


@pytest.mark.parametrize("character", ["\0", "\x1b", "\r", "\x7f\x08", "\ufffe", "\ud800"])
@pytest.mark.parametrize("place", ["arguments", "environment"])
def test_characters_that_xml_does_not_keep_are_refused(character: str, place: str) -> None:
    value = f"a{character}b"
    with pytest.raises(InputError, match=r"U\+[0-9A-F]{4}"):
        replace(VALUES, **{place: (*VALUES.arguments, value) if place == "arguments" else {"NAME": value}})


@pytest.mark.parametrize(
    "fault",
    [
        {"label": "a/b"},
        {"arguments": ()},
        {"arguments": ("kakeya", "serve")},
        {"arguments": (*VALUES.arguments, 8080)},
        {"working_directory": "~/.kakeya"},
        {"stdout_path": "logs/x"},
        {"stderr_path": "/logs/\n/x"},
        {"stderr_path": "file:///x"},
        {"environment": {"PORT": 8080}},
        {"environment": {"A=B": "1"}},
        {"environment": {"": "1"}},
        {"environment": {"A</key>": "1"}},
        {"drain_seconds": -1},
        {"throttle_seconds": 0},
        {"open_files": 0},
    ],
)
def test_what_launchd_would_ignore_or_misread_is_refused(fault: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        replace(VALUES, **fault)


def test_templates_are_found_in_a_checkout_and_in_an_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Path(kakeya_ops.__file__).parents[1] / "templates"
    assert find_templates() == checkout
    package = tmp_path / "site-packages" / "kakeya_ops"
    shutil.copytree(checkout, package / "templates")
    monkeypatch.setattr(kakeya_ops, "__file__", str(package / "__init__.py"))
    assert find_templates() == package / "templates"
    assert rendered()["Label"] == LABEL
    shutil.rmtree(package / "templates")
    with pytest.raises(EnvironmentFault, match=r"node\.plist\.j2"):
        find_templates()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{{ service.label }}", "{{ service.label }}&"),
        ("{{ argument }}", "{{ argument | lower | safe }}"),
        ("{{ service.exit_timeout_seconds }}", "1"),
    ],
)
def test_a_broken_template_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    text = (find_templates() / template.TEMPLATE).read_text()
    (tmp_path / template.TEMPLATE).write_text(text.replace(before, after))
    monkeypatch.setattr(template, "find_templates", lambda: tmp_path)
    with pytest.raises(EnvironmentFault, match="template"):
        render_plist(replace(VALUES, arguments=(*VALUES.arguments, "UPPER")))


def test_a_service_runs_as_it_is_rendered(mac: MacHost) -> None:
    log = mac.home / "logs" / "service.log"
    values = ServiceValues(
        label=LABEL,
        domain="gui",
        arguments=("/bin/sh", "-c", 'echo "$KAKEYA|$1"; exec sleep 300', "sh", "]]> & two\nlines"),
        working_directory=str(mac.home),
        stdout_path=str(log),
        stderr_path=str(log),
        drain_seconds=DRAIN_SECONDS,
        environment={"KAKEYA": "a 'b' <c>"},
        prevent_sleep=True,
    )
    service = Service(Domain("gui", mac.state.own_uid), LABEL)
    path = mac.write_agent(render_plist(values))
    assert mac.run(*bootstrap(service.domain, str(path))).returncode == 0
    mac.wait_for(lambda: log.exists() and log.read_text() == "a 'b' <c>|]]> & two\nlines\n")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    state = parse_print(mac.run(*print_service(service)).stdout)
    assert state.running
    assert state.loaded_with(values.program_arguments)
    assert state.environment["KAKEYA"] == "a 'b' <c>"
    job = mac.wait_until_running(LABEL)
    assert state.pid == job.pid
