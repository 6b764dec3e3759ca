"""Keys and host keys are tried in `test_connect`; here is what takes more than one key of the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from kakeya_ops.errors import ConnectFailed
from kakeya_ops.remote.paramiko_session import open_transport
from kakeya_ops.remote.ssh_config import SshTarget, resolve
from sshd import SshServer, make_key, quoted

KINDS = ("ed25519", "ecdsa", "rsa")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A host key of each kind."""
    folder = tmp_path_factory.mktemp("host_keys")
    return {kind: make_key(folder / f"{kind}_key", kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_that_is_on_file_is_asked_for(tmp_path: Path, keys: dict[str, Path], kind: str) -> None:
    server = SshServer(tmp_path / "server")
    server.knobs = type(server.knobs)(settings={"HostKey": "\nHostKey ".join(quoted(key) for key in keys.values())})
    with server:
        server.known_hosts.write_text(server.known_line(keys[kind]))
        transport = open_transport("mac", resolve(SshTarget("mac", config_file=server.write_config())))
        assert kind in transport.get_remote_server_key().get_name()
        transport.close()


def test_only_allowed_algorithms_are_offered(server: SshServer) -> None:
    config = server.write_config("mac", "narrow", Ciphers="aes256-ctr", KexAlgorithms="diffie-hellman-group16-sha512")
    transport = open_transport("mac", resolve(SshTarget("mac", config_file=config)))
    assert transport.get_security_options().ciphers == ("aes256-ctr",)
    assert transport.get_security_options().kex == ("diffie-hellman-group16-sha512",)
    transport.close()


def test_nothing_in_common(tmp_path: Path) -> None:
    server = SshServer(tmp_path / "server")
    server.knobs = type(server.knobs)(settings={"Ciphers": "chacha20-poly1305@openssh.com"})
    with server, pytest.raises(ConnectFailed, match="no algorithm in common"):
        open_transport("mac", resolve(SshTarget("mac", config_file=server.write_config())))
