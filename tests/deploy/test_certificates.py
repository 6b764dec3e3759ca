"""A node's certificate is a thing to be installed like its key: seen, judged, replaced, put back."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, inventory, material, planner, settled
from kakeya_ops.certificates.facts import find_fault
from kakeya_ops.certificates.founding import make_secrets
from kakeya_ops.certificates.places import authorities_path, authority_path, certificate_path
from kakeya_ops.deploy.certificates import MODE, WriteCertificates, read_fleet_authority
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.report import describe_plan
from kakeya_ops.errors import InputError
from kakeya_ops.observe.state import CertificateFile, Unknown
from trust import AUTHORITY, LONG_AGO, NOW, STRANGER

SECURED = inventory(PLANNER_INVENTORY.replace("address: 127.0.0.1, port: 53051", "address: 10.0.0.7, port: 53051"))
GOOD = CertificateFile(MODE, AUTHORITY.issue("allens", ("10.0.0.7",), NOW))
SOON = NOW - datetime.timedelta(days=710)
PLANNER = planner(inventory=SECURED, material=material(authority=AUTHORITY))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"authorities": None}, "the fleet's authority is missing"),
        ({"authorities": STRANGER.pem}, "the fleet's authority differs"),
        ({"certificate": None}, "the node's certificate is missing"),
        ({"certificate": Unknown("no sed")}, "the node's certificate is unknown (no sed)"),
        ({"certificate": replace(GOOD, mode=0o644)}, "the node's certificate has mode 0644"),
        ({"certificate": replace(GOOD, pem=b"")}, "the node's certificate cannot be read"),
        (
            {"certificate": CertificateFile(MODE, AUTHORITY.issue("allens", ("10.0.0.7",), SOON))},
            "the node's certificate expires in 20 days",
        ),
        (
            {"certificate": CertificateFile(MODE, AUTHORITY.issue("allens", ("10.0.0.6",), NOW))},
            "the node's certificate does not name 10.0.0.7",
        ),
    ],
)
def test_what_is_wrong_with_a_certificate_is_a_change_to_be_made(
    changes: dict[str, object], reason: str | None
) -> None:
    state = replace(settled(PLANNER, "allens"), **({"authorities": AUTHORITY.pem, "certificate": GOOD} | changes))
    plan = PLANNER.plan({"allens": state})
    if reason is None:
        assert plan.pending == ()
        return
    [host] = plan.pending
    assert host.reasons == (reason,)
    titles = describe_plan(plan)["hosts"][0]["steps"]
    at = titles.index("write a certificate for the node, and the fleet's authority (mode 0600)")
    assert titles[at:] != titles[: at + 1], "the service is started anew afterwards"
    assert any(title.startswith("start the service") for title in titles[at:])


def test_a_fleet_in_clear_has_no_certificates() -> None:
    assert planner().plan({"allens": settled(planner(), "allens")}).pending == ()


def test_a_certificate_is_written_for_its_owner_alone_and_the_old_one_comes_back(context: HostContext) -> None:
    key = Path(context.places.key or "")
    key.parent.mkdir(parents=True, exist_ok=True)
    own, authorities = certificate_path(key), authorities_path(key)
    first = WriteCertificates(AUTHORITY, AUTHORITY.pem)
    first.apply(context)
    context.settle()
    before = own.read_bytes()
    assert [path.stat().st_mode & 0o777 for path in (own, authorities)] == [0o600, 0o600]
    addresses = [endpoint.address for endpoint in context.host.endpoints]
    assert find_fault(before, AUTHORITY.certificate, context.host.name, addresses, NOW) is None
    WriteCertificates(STRANGER, STRANGER.pem).apply(context)
    assert own.read_bytes() != before
    assert context.put_back() == []
    assert (own.read_bytes(), authorities.read_bytes()) == (before, AUTHORITY.pem)


def test_the_authority_is_read_where_it_is_needed(home: Path) -> None:
    assert read_fleet_authority(inventory()) is None
    with pytest.raises(InputError, match="the fleet has no authority") as caught:
        read_fleet_authority(SECURED)
    assert "kakeya key new" in str(caught.value.hint)
    key = home / ".kakeya/fleet.key"
    make_secrets(key, "pair")
    authority = read_fleet_authority(SECURED)
    assert authority is not None
    old = type(authority).new("pair", LONG_AGO.replace(year=LONG_AGO.year - 8))
    authority_path(key).write_bytes(old.file)
    with pytest.raises(InputError, match="expires soon") as late:
        read_fleet_authority(SECURED)
    assert late.value.hint == "replace it with: kakeya key rotate"
