"""The authority is replaced while nodes talk: at no step are there two that do not accept each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deploy.states import PLANNER_INVENTORY, bare, inventory
from kakeya_ops.certificates.authority import read_authority
from kakeya_ops.certificates.founding import make_secrets
from kakeya_ops.certificates.material import Certificates, read_certificates
from kakeya_ops.certificates.places import authority_path, certificate_path
from kakeya_ops.deploy.certificate_rotation import ACCEPTS, DONE, SIGNS, Authorities
from kakeya_ops.deploy.certificates import WriteCertificates
from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.key_rotation import Keys, Pending, State, WriteKeys
from kakeya_ops.errors import InputError, TlsFailed
from kakeya_ops.secret import Secret, key_lines
from serving.running import make_cache
from trust import AUTHORITY, STRANGER, tls_client, tls_served

SECURED = inventory(PLANNER_INVENTORY.replace("address: 127.0.0.1, port: 53051", "address: 10.0.0.7, port: 53051"))
BOTH = Authorities(AUTHORITY, STRANGER)
KEYS = Keys(Secret(b"o" * 32), Secret(b"n" * 32), BOTH)


def certificates_in(context: HostContext, state: State) -> Certificates:
    """Those of the node after the pass to `state`."""
    if state is not State.OLD:
        WriteKeys(KEYS, state).apply(context)
    assert context.places.key is not None
    found = read_certificates(Path(context.places.key))
    assert found is not None
    return found


def test_in_each_pass_all_nodes_accept_each_other_and_in_the_end_the_old_authority_is_nobody(
    context: HostContext,
) -> None:
    assert context.places.key is not None
    Path(context.places.key).parent.mkdir(parents=True, exist_ok=True)
    WriteCertificates(AUTHORITY, AUTHORITY.pem).apply(context)
    Path(context.places.key).write_bytes(key_lines(KEYS.old))
    by_state = {state: certificates_in(context, state) for state in State}
    for early, late in ((State.OLD, State.ACCEPTS), (State.ACCEPTS, State.SIGNS), (State.SIGNS, State.DONE)):
        for one, other in ((early, late), (late, early)):
            node = make_cache(context.host.name)
            with tls_served(node, by_state[one]) as served, tls_client(served, by_state[other]) as client:
                assert client.card().node == context.host.name
    with (
        tls_served(make_cache(context.host.name), by_state[State.DONE]) as served,
        tls_client(served, by_state[State.OLD]) as client,
        pytest.raises(TlsFailed),
    ):
        client.card()


def test_what_a_host_accepts_says_how_far_it_is(context: HostContext) -> None:
    for state in (ACCEPTS, SIGNS, DONE):
        assert BOTH.state_of(BOTH.accepted(state)) == state
    assert BOTH.state_of(None) == BOTH.state_of(AUTHORITY.pem) == 0
    found = replace(bare("allens"), authorities=BOTH.accepted(ACCEPTS))
    assert KEYS.found_in(found, *KEYS.files(State.SIGNS)) is State.ACCEPTS
    assert KEYS.found_in(found, *KEYS.files(State.OLD)) is State.OLD


def test_a_certificate_that_was_taken_back_is_the_old_one(context: HostContext) -> None:
    assert context.places.key is not None
    own = certificate_path(context.places.key)
    own.parent.mkdir(parents=True, exist_ok=True)
    WriteCertificates(AUTHORITY, AUTHORITY.pem).apply(context)
    context.settle()
    before = own.read_bytes()
    BOTH.write(context, SIGNS)
    assert own.read_bytes() != before
    assert context.put_back() == []
    assert own.read_bytes() == before


def test_an_interrupted_rotation_goes_on_with_the_same_authorities(home: Path) -> None:
    key = home / ".kakeya/fleet.key"
    make_secrets(key, "pair")
    first = read_authority(authority_path(key))
    assert first is not None
    begun = Pending.of(SECURED).begin().authorities
    again = Pending.of(SECURED).begin()
    assert begun is not None
    assert again.authorities is not None
    assert (again.authorities.old.pem, again.authorities.new.pem) == (first.pem, begun.new.pem)
    Pending.of(SECURED).adopt(again)
    after = Pending.of(SECURED).begin().authorities
    assert after is not None
    assert (after.old.pem, after.new.pem) == (first.pem, begun.new.pem)
    Pending.of(SECURED).end()
    assert sorted(path.name for path in key.parent.iterdir()) == ["fleet.key", "fleet.key.authority.pem"]
    now = read_authority(authority_path(key))
    assert now is not None
    assert now.pem == begun.new.pem


def test_a_fleet_in_clear_keeps_its_authority_and_one_without_any_is_told(home: Path) -> None:
    key = home / ".kakeya/fleet.key"
    make_secrets(key, "pair")
    assert Pending.of(inventory()).begin().authorities is None
    Pending.of(inventory()).end()
    authority_path(key).unlink()
    with pytest.raises(InputError, match="no authority to be replaced"):
        Pending.of(SECURED).begin()
    assert not Pending.of(SECURED).exists
