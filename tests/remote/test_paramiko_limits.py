from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from kakeya_ops.remote.paramiko_limits import ALGORITHMS, beyond_paramiko, may_need_ssh, usable_algorithms
from kakeya_ops.remote.ssh_config import ResolvedSsh, SshTarget, resolve
from sshd import make_key


def asked(tmp_path: Path, *lines: str) -> ResolvedSsh:
    config = tmp_path / "config"
    base = ("IdentityFile none", "UserKnownHostsFile none", "GlobalKnownHostsFile none")
    config.write_text("\n".join((*lines, *base)))
    return resolve(SshTarget("mac", config_file=config))


def test_a_plain_configuration_asks_for_nothing_more(tmp_path: Path) -> None:
    assert beyond_paramiko(asked(tmp_path, "Compression yes", "ServerAliveInterval 5", "ForwardAgent yes")) == ()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("ProxyJump a,b", ("ProxyJump",)),
        ("ProxyCommand nc %h %p", ("ProxyCommand",)),
        ("ProxyCommand none", ()),
        ("CertificateFile /cert", ("CertificateFile",)),
        ("IdentityAgent /agent.sock", ("IdentityAgent",)),
        ("IdentityAgent none", ()),
        ("IdentityAgent SSH_AUTH_SOCK", ()),
        ("KnownHostsCommand /bin/true", ("KnownHostsCommand",)),
        ("BindAddress 10.0.0.1", ("BindAddress",)),
        ("AddressFamily inet6", ("AddressFamily",)),
        ("SetEnv A=b", ("SetEnv",)),
        ("HostbasedAuthentication yes", ("HostbasedAuthentication",)),
        ("PKCS11Provider /lib.so", ("PKCS11Provider",)),
        ("VerifyHostKeyDNS yes", ("VerifyHostKeyDNS",)),
        ("VerifyHostKeyDNS ask", ()),
        ("IdentityFile /keys/%h", ("identityfile with % or ${}",)),
        ("Ciphers chacha20-poly1305@openssh.com", ("ciphers without any that paramiko has",)),
        ("Ciphers chacha20-poly1305@openssh.com,aes256-ctr", ()),
    ],
)
def test_settings(tmp_path: Path, line: str, names: tuple[str, ...]) -> None:
    assert beyond_paramiko(asked(tmp_path, line)) == names


def test_gssapi_is_only_a_second_try(tmp_path: Path) -> None:
    ssh = asked(tmp_path, "GSSAPIAuthentication yes")
    assert beyond_paramiko(ssh) == ()
    assert may_need_ssh(ssh) == ("GSSAPIAuthentication",)
    assert may_need_ssh(asked(tmp_path, "GSSAPIAuthentication no")) == ()


def test_keys_that_need_more_than_paramiko(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    assert beyond_paramiko(asked(tmp_path, f"IdentityFile {key}")) == ()
    (tmp_path / "key-cert.pub").write_text("certificate")
    assert beyond_paramiko(asked(tmp_path, f"IdentityFile {key}")) == (f"a certificate for {key}",)
    (tmp_path / "token.pub").write_text("sk-ssh-ed25519@openssh.com AAAA")
    assert beyond_paramiko(asked(tmp_path, f"IdentityFile {tmp_path}/token")) == (f"security key {tmp_path}/token",)


def test_hosts_that_only_an_authority_vouches_for(tmp_path: Path) -> None:
    known = tmp_path / "known"
    known.write_text("@cert-authority mac ssh-ed25519 AAAA\n")
    ssh = asked(tmp_path, f"UserKnownHostsFile {known}")
    assert beyond_paramiko(ssh) == ("@cert-authority in known_hosts",)
    known.write_text(known.read_text() + "mac ssh-ed25519 AAAA\n")
    assert beyond_paramiko(ssh) == ()


def test_algorithms_are_those_that_are_allowed(tmp_path: Path) -> None:
    ssh = asked(tmp_path, "Ciphers aes256-ctr,aes128-ctr,chacha20-poly1305@openssh.com", "MACs hmac-sha2-512")
    assert usable_algorithms(ssh, "ciphers") == ("aes128-ctr", "aes256-ctr")
    assert usable_algorithms(ssh, "macs") == ("hmac-sha2-512",)
    nothing = ResolvedSsh(SshTarget("mac"), {}, None)
    assert usable_algorithms(nothing, "ciphers") == ALGORITHMS["ciphers"][1]


def test_paramikos_names_of_the_lists() -> None:
    options = [name for name in dir(paramiko.transport.SecurityOptions) if not name.startswith("_")]
    assert {attribute for attribute, _ in ALGORITHMS.values()} <= set(options)
