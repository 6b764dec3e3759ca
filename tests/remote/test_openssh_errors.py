"""Texts as OpenSSH 9.2 wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.errors import AuthenticationFailed, ConnectFailed
from kakeya_ops.remote.openssh_errors import connect_error, find_complaint, host_key_error
from kakeya_ops.remote.ssh_config import ResolvedSsh, SshTarget

PRINT = "SHA256:" + "a" * 43
UNKNOWN = """No ED25519 host key is known for [10.0.0.2]:2222 and you have requested strict checking.
Host key verification failed.
"""
CHANGED = f"""@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
The fingerprint for the ED25519 key sent by the remote host is
{PRINT}.
Please contact your system administrator.
Host key for [10.0.0.2]:2222 has changed and you have requested strict checking.
Host key verification failed.
"""
REVOKED = f"""@       WARNING: REVOKED HOST KEY DETECTED!               @
The ED25519 host key for mac is marked as revoked.
debug1: Server host key: ssh-ed25519 {PRINT}
Host key verification failed.
"""


def resolved(**settings: str) -> ResolvedSsh:
    given = {"hostname": "10.0.0.2", "port": "2222", "user": "fluffy", "userknownhostsfile": "/k"} | settings
    return ResolvedSsh(SshTarget("mac"), {name: (value,) for name, value in given.items()}, "ssh")


@pytest.mark.parametrize(
    ("said", "standing", "key_type", "shown"),
    [
        (UNKNOWN, "unknown", "ed25519", ""),
        (f"debug1: Server host key: ssh-ed25519 {PRINT}\n{UNKNOWN}", "unknown", "ssh-ed25519", PRINT),
        (CHANGED, "changed", "ed25519", PRINT),
        (REVOKED, "revoked", "ssh-ed25519", PRINT),
    ],
)
def test_host_keys(said: str, standing: str, key_type: str, shown: str) -> None:
    complaint = find_complaint(said, resolved())
    assert complaint is not None
    assert (complaint.standing, complaint.known_name, complaint.key_type, complaint.fingerprint) == (
        standing,
        "[10.0.0.2]:2222",
        key_type,
        shown,
    )
    error = host_key_error("allens", resolved(), complaint)
    assert (error.reason, shown in error.fingerprint) == (standing, True)
    assert error.hint is not None
    assert "-p 2222 10.0.0.2 >> /k" in error.hint


def test_a_key_behind_a_jump_host_is_accepted_by_ssh_itself() -> None:
    ssh = resolved(proxyjump="bastion")
    complaint = find_complaint(UNKNOWN, ssh)
    assert complaint is not None
    hint = host_key_error("allens", ssh, complaint).hint
    assert hint is not None
    assert hint.endswith("accept it: ssh -o StrictHostKeyChecking=ask mac true")
    changed = find_complaint(CHANGED, ssh)
    assert changed is not None
    hint = host_key_error("allens", ssh, changed).hint
    assert hint is not None
    assert "ssh-keygen -R '[10.0.0.2]:2222' -f /k && ssh -o" in hint


def test_the_jump_hosts_own_key_is_named() -> None:
    ssh = resolved(proxyjump="bastion")
    complaint = find_complaint(UNKNOWN.replace("[10.0.0.2]:2222", "bastion.example"), ssh)
    assert complaint is not None
    hint = host_key_error("allens", ssh, complaint).hint
    assert hint is not None
    assert "(it is bastion.example's)" in hint
    assert "ssh-keyscan -t ed25519 -p 22 bastion.example >> /k" in hint


@pytest.mark.parametrize(
    ("said", "kind", "transient"),
    [
        ("fluffy@10.0.0.2: Permission denied (publickey).", AuthenticationFailed, None),
        ("Received disconnect from 10.0.0.2: 2: Too many authentication failures", AuthenticationFailed, None),
        ("ssh: connect to host 10.0.0.2 port 22: Connection refused", ConnectFailed, False),
        ("ssh: Could not resolve hostname nowhere: Name or service not known", ConnectFailed, False),
        ("kex_exchange_identification: Connection closed by remote host", ConnectFailed, True),
        ("Connection timed out during banner exchange", ConnectFailed, True),
        ("", ConnectFailed, False),
    ],
)
def test_other_reasons(said: str, kind: type, transient: bool | None) -> None:
    assert find_complaint(said, resolved()) is None
    error = connect_error("allens", resolved(), said)
    assert type(error) is kind
    assert error.hint == "try: ssh mac true"
    if isinstance(error, ConnectFailed):
        assert error.transient is transient
        assert said in error.message


def test_keys_that_were_tried(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    error = connect_error("allens", resolved(identityfile=str(tmp_path / "key")), "x: Permission denied (publickey).")
    assert isinstance(error, AuthenticationFailed)
    assert (error.user, error.tried) == ("fluffy", (str(tmp_path / "key"),))
