"""A fleet over a network that nobody trusts: it gets certificates, works by them alone, and gets others meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.heads import Head, wait_until
from flows.networks import untrusted_network
from flows_deploy.deployed import Fleet
from kakeya_ops.certificates.authority import Authority, read_authority, write_authority
from kakeya_ops.certificates.facts import is_issued, parse_certificates
from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.certificates import now
from kakeya_ops.deploy.cross_check import CrossCheck
from kakeya_ops.deploy.key_rotation import PASSES, Pending, Rotation
from kakeya_ops.secret import Secret, read_fleet_key

pytestmark = [pytest.mark.marathon, pytest.mark.system("root"), pytest.mark.timeout(900)]
ADDRESS = "10.211.55.8"


@pytest.fixture(scope="module")
def first(fleet: Fleet) -> Iterator[dict[str, HostResult]]:
    """What came of deploying to both hosts for the first time."""
    with untrusted_network(ADDRESS):
        for name, port in fleet.ports.items():
            fleet.change_host(name, endpoints=[{"network": "wifi", "address": ADDRESS, "port": port}])
        write_authority(authority_path(_key_file(fleet)), "flows", now())
        yield fleet.deploy()


def test_certificates_are_installed_and_the_nodes_reach_each_other_by_tls(
    fleet: Fleet, first: dict[str, HostResult]
) -> None:
    assert [result.verdict for result in first.values()] == ["done", "done"], first
    with fleet.hosts() as hosts:
        checks = CrossCheck(hosts).run(first)
    assert [check.verdict for check in checks] == ["ok"] * 6, checks
    assert not fleet.plan().pending
    authority = read_authority(authority_path(_key_file(fleet)))
    assert authority is not None
    for name in fleet.roles:
        _certified_by(fleet, name, authority)


@pytest.mark.usefixtures("first")
def test_a_prefix_comes_by_tls(fleet: Fleet) -> None:
    _prefilled_by_tls(fleet, read_fleet_key(_key_file(fleet)), "before", compare=True)


@pytest.mark.usefixtures("first")
def test_key_and_certificates_are_replaced_while_the_fleet_serves_by_tls(fleet: Fleet) -> None:
    old = read_authority(authority_path(_key_file(fleet)))
    pending = Pending.of(fleet.inventory)
    keys = pending.begin()
    with fleet.hosts() as hosts:
        rotation = Rotation(hosts, pending, keys, lambda plan: [*fleet.apply(hosts, plan, parallel=1).values()])
        for expected, done in zip(PASSES, rotation.run(), strict=True):
            assert (done.state, done.good) == (expected, True), (done, fleet.notes[-20:])
            _prefilled_by_tls(fleet, keys.new, f"pass {done.state}")
        assert {check.verdict for check in CrossCheck(hosts).run(fleet.roles)} == {"ok"}
    new = read_authority(authority_path(_key_file(fleet)))
    assert new is not None
    assert old is not None
    assert new.pem != old.pem
    for name in fleet.roles:
        _certified_by(fleet, name, new)
    assert not fleet.plan().pending


def _key_file(fleet: Fleet) -> Path:
    return fleet.folder / "operator/.kakeya/fleet.key"


def _certified_by(fleet: Fleet, name: str, authority: Authority) -> None:
    """The files of a host are of `authority` alone, and its owner's alone."""
    key = fleet.places(name).key
    assert key is not None
    own = certificate_path(key)
    [certificate] = parse_certificates(own.read_bytes())
    assert is_issued(certificate, authority.certificate)
    assert authorities_path(key).read_bytes() == authority.pem
    assert os.stat(own).st_mode & 0o777 == 0o600


def _prefilled_by_tls(fleet: Fleet, key: Secret, what: str, *, compare: bool = False) -> None:
    """A prompt that nobody has seen is prefilled by the worker, over TLS."""
    prompt = f"{what}: " + "far away " * 60
    head = Head(fleet.api_port, key)
    try:
        # A head that has just started calls a peer usable once it has seen it on a way that works.
        wait_until(lambda: head.usable("allens"), "meeting allens")
        answer, receipt = head.complete(prompt, "remote")
        if compare:
            local, _ = head.complete(prompt, "local")
            assert answer.logprobs == local.logprobs
    finally:
        head.close()
    assert receipt["fallback"] is None
    assert receipt["remote"]["node"] == "allens"
    assert receipt["remote"]["computed_tokens"] > 64
    assert receipt["remote"]["link"]["security"] == "tls"
