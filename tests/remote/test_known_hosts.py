from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.remote.known_hosts import (
    accept_command,
    fingerprint,
    forget_command,
    judge,
    known_key_types,
    names_of,
    parse_known_hosts,
    read_known_hosts,
)
from sshd import make_key

KEY, OTHER = b"key", b"other"


def line(hosts: str, key: bytes = KEY, key_type: str = "ssh-ed25519", marker: str = "") -> str:
    return f"{marker} {hosts} {key_type} {base64.b64encode(key).decode()} comment\n".lstrip()


@pytest.mark.parametrize(
    ("hosts", "name", "about"),
    [
        ("mac", "mac", True),
        ("mac", "MAC", True),
        ("MAC.local", "mac.LOCAL", True),
        ("mac", "mac2", False),
        ("a,mac", "mac", True),
        ("*.local", "mac.local", True),
        ("*.local", "local", False),
        ("mac?", "mac1", True),
        ("mac?", "mac12", False),
        ("*,!mac", "mac", False),
        ("!mac", "other", False),
        ("[mac]:2222", "[mac]:2222", True),
        ("[mac]:2222", "mac", False),
        ("[m]ac", "mac", False),
        ("m.c", "mac", False),
        ("10.0.0.*", "10.0.0.7", True),
        ("|1|not-base64|x", "mac", False),
        ("|1|", "mac", False),
    ],
)
def test_whom_a_line_is_about(hosts: str, name: str, about: bool) -> None:
    [parsed] = parse_known_hosts(line(hosts))
    assert parsed.is_about(name) is about


def test_hashed_names_are_ssh_keygens(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text(line("[mac.local]:2222") + line("other"))
    subprocess.run(["ssh-keygen", "-H", "-f", file], check=True, capture_output=True)
    lines = read_known_hosts([file])
    assert [found.is_about("[mac.local]:2222") for found in lines] == [True, False]


def test_bad_lines_are_passed_over() -> None:
    text = f"# note\n\nmac\nmac ssh-rsa\nmac ssh-rsa !!!\n@unknown {line('mac')}@revoked mac\n{line('good')}"
    assert [found.patterns for found in parse_known_hosts(text)] == [("good",)]


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse_known_hosts(text)


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("", "unknown"),
        (line("mac"), "known"),
        (line("mac", OTHER), "changed"),
        (line("mac", OTHER) + line("mac"), "known"),
        (line("mac", OTHER, "ssh-rsa"), "unknown"),
        (line("mac") + line("*", marker="@revoked"), "revoked"),
        (line("mac") + line("*", OTHER, marker="@revoked"), "known"),
        (line("mac", marker="@cert-authority"), "unknown"),
        (line("elsewhere"), "unknown"),
    ],
)
def test_standing(text: str, standing: str) -> None:
    assert judge(parse_known_hosts(text), ["mac"], "ssh-ed25519", KEY) == standing


def test_a_key_on_file_without_the_port_accepts_but_does_not_contradict() -> None:
    names = names_of("mac", 2222, None)
    assert names == ("[mac]:2222", "mac")
    assert judge(parse_known_hosts(line("mac")), names, "ssh-ed25519", KEY) == "known"
    assert judge(parse_known_hosts(line("mac", OTHER)), names, "ssh-ed25519", KEY) == "unknown"


def test_names() -> None:
    assert names_of("mac", 22, None) == ("mac",)
    assert names_of("mac", 2222, "alias") == ("alias",)


def test_types_on_file() -> None:
    text = line("mac", key_type="ssh-rsa") + line("mac") + line("mac", OTHER) + line("x", key_type="ecdsa")
    assert known_key_types(parse_known_hosts(text), ["mac"]) == ("ssh-rsa", "ssh-ed25519")


def test_the_fingerprint_is_ssh_keygens(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    blob = base64.b64decode(key.with_suffix(".pub").read_text().split()[1])
    shown = subprocess.run(["ssh-keygen", "-l", "-f", key], check=True, capture_output=True, text=True).stdout
    assert fingerprint(blob) == shown.split()[1]


def test_commands_are_quoted() -> None:
    file = Path("/home/a b/known")
    assert accept_command("[mac]:2222", "unknown", "ssh-ed25519", file) == (
        "ssh-keyscan -t ssh-ed25519 -p 2222 mac >> '/home/a b/known'"
    )
    assert accept_command("mac;x", "changed", "ssh-ed25519", Path("/k")) == (
        "ssh-keygen -R 'mac;x' -f /k && ssh-keyscan -t ssh-ed25519 -p 22 'mac;x' >> /k"
    )
    assert forget_command("mac", Path("/k")) == "ssh-keygen -R mac -f /k"


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert read_known_hosts([tmp_path / "none"]) == ()
