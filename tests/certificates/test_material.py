from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kakeya_ops.certificates.authority import write_authority
from kakeya_ops.certificates.material import (
    caller_certificates,
    certificates_here,
    read_certificates,
)
from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.errors import InputError, TlsFailed
from serving.running import make_cache
from trust import AUTHORITY, NOW, certificates, tls_client, tls_served, write_certificate


def install(folder: Path, *, own: bytes | None = None, authorities: bytes = AUTHORITY.pem) -> Path:
    key = folder / "fleet.key"
    authorities_path(key).write_bytes(authorities)
    write_certificate(certificate_path(key), own if own is not None else AUTHORITY.issue("n", (), NOW))
    return key


def test_a_node_finds_its_certificate_beside_its_key(tmp_path: Path) -> None:
    assert read_certificates(tmp_path / "fleet.key") is None
    found = read_certificates(install(tmp_path))
    assert found is not None
    assert found.is_good(NOW.timestamp())
    assert not found.is_good(NOW.timestamp() + 731 * 86400)
    for context in (found.client, found.server):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert "kakeya fleet tests" in str(context.get_ca_certs())


def test_files_that_cannot_be_used_are_told_with_what_to_do(tmp_path: Path) -> None:
    issued, other = (AUTHORITY.issue(name, (), NOW) for name in ("n", "m"))
    mark = b"-----BEGIN CERTIFICATE"
    mixed = issued.partition(mark)[0] + mark + other.partition(mark)[2]
    for own in (b"", AUTHORITY.pem, mixed, issued.replace(b"PRIVATE", b"PUBLIC")):
        with pytest.raises(InputError, match=r"cert\.pem cannot be used") as caught:
            read_certificates(install(tmp_path, own=own))
        assert caught.value.hint is not None
    with pytest.raises(InputError, match="cannot be used"):
        read_certificates(install(tmp_path, authorities=b""))


def test_a_certificate_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key = install(tmp_path)
    certificate_path(key).chmod(0o644)
    with pytest.raises(InputError, match="open to other users"):
        read_certificates(key)


def test_who_holds_the_authority_can_call_but_is_no_node() -> None:
    caller = caller_certificates(AUTHORITY, "operator")
    with tls_served(make_cache(), certificates()) as served, tls_client(served, caller) as client:
        assert client.card().node == "cache"
    with (
        tls_served(make_cache("operator"), caller) as served,
        tls_client(served, certificates("head")) as client,
        pytest.raises(TlsFailed, match="certificate is no good"),
    ):
        client.card()


def test_a_command_calls_by_the_authority_or_else_by_the_node_of_its_machine(tmp_path: Path) -> None:
    key = tmp_path / "fleet.key"
    assert certificates_here(key, "operator") is None
    install(tmp_path)
    node = certificates_here(key, "operator")
    write_authority(authority_path(key), "tests", NOW)
    caller = certificates_here(key, "operator")
    assert node is not None
    assert caller is not None
    assert "kakeya fleet tests" in str(caller.client.get_ca_certs())
    assert node.client.get_ca_certs() != caller.client.get_ca_certs()
