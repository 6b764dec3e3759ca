"""What a user's ssh configuration asks for that paramiko cannot do, so that the system's ssh has to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import paramiko

from kakeya_ops.remote.known_hosts import known_key_types, read_known_hosts
from kakeya_ops.remote.ssh_config import ResolvedSsh, Settings

_UNABLE = {
    "addressfamily": "AddressFamily",
    "bindaddress": "BindAddress",
    "bindinterface": "BindInterface",
    "certificatefile": "CertificateFile",
    "hostbasedauthentication": "HostbasedAuthentication",
    "knownhostscommand": "KnownHostsCommand",
    "pkcs11provider": "PKCS11Provider",
    "proxycommand": "ProxyCommand",
    "proxyjump": "ProxyJump",
    "setenv": "SetEnv",
    "verifyhostkeydns": "VerifyHostKeyDNS",
}
_NOT_ASKED_FOR = frozenset({"", "none", "no", "false", "any", "ask"})
_AGENTS = frozenset({"", "none", "SSH_AUTH_SOCK"})

ALGORITHMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ciphers": ("ciphers", paramiko.Transport._preferred_ciphers),
    "macs": ("digests", paramiko.Transport._preferred_macs),
    "kexalgorithms": ("kex", paramiko.Transport._preferred_kex),
}
"""Settings that list algorithms: paramiko's name for the list, and which of them it has."""


def beyond_paramiko(ssh: ResolvedSsh) -> tuple[str, ...]:
    """The settings for this host that only the system's ssh can honour; empty where paramiko can do it all."""
    return tuple(dict.fromkeys(_find(ssh)))


def may_need_ssh(ssh: ResolvedSsh) -> tuple[str, ...]:
    """What the system's ssh could still try when paramiko's keys were refused.

    GSSAPI is on by default in some distributions, so it is no reason in itself.
    """
    return ("GSSAPIAuthentication",) if ssh.first("gssapiauthentication") == "yes" else ()


def usable_algorithms(ssh: ResolvedSsh, setting: str) -> tuple[str, ...]:
    """Of `setting`'s algorithms those that paramiko has, in its order; all of them where nothing is set."""
    _, able = ALGORITHMS[setting]
    allowed = ssh.first(setting).split(",")
    return tuple(name for name in able if name in allowed) if ssh.first(setting) else able


def _find(ssh: ResolvedSsh) -> Iterator[str]:
    yield from _unable(ssh.settings)
    if ssh.first("identityagent") not in _AGENTS:
        yield "IdentityAgent"
    yield from _odd_identities(ssh.identity_files)
    yield from (f"{setting} without any that paramiko has" for setting in ALGORITHMS if _none_usable(ssh, setting))
    if _only_certified(ssh):
        yield "@cert-authority in known_hosts"


def _unable(settings: Settings) -> Iterator[str]:
    for setting, name in _UNABLE.items():
        if any(value.lower() not in _NOT_ASKED_FOR for value in settings.get(setting, ())):
            yield name
    for setting in ("identityfile", "userknownhostsfile", "globalknownhostsfile"):
        if any("%" in value or "${" in value for value in settings.get(setting, ())):
            yield f"{setting} with % or ${{}}"


def _odd_identities(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        if path.with_name(f"{path.name}-cert.pub").is_file():
            yield f"a certificate for {path}"
        try:
            public = path.with_name(f"{path.name}.pub").read_text(errors="replace")
        except OSError:
            continue
        if public.startswith("sk-"):
            yield f"security key {path}"


def _none_usable(ssh: ResolvedSsh, setting: str) -> bool:
    return not usable_algorithms(ssh, setting)


def _only_certified(ssh: ResolvedSsh) -> bool:
    """Whether the host is known by a certificate authority alone."""
    lines = read_known_hosts(ssh.known_hosts_files)
    certified = any(
        line.marker == "@cert-authority" and line.is_about(name) for line in lines for name in ssh.known_names
    )
    return certified and not known_key_types(lines, ssh.known_names)


__all__ = ["ALGORITHMS", "beyond_paramiko", "may_need_ssh", "usable_algorithms"]
