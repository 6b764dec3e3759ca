"""What must hold between nodes: one process for each name, one release, one cache identity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.serving.compatibility import find_difference
from kakeya_ops.wire.cards import Card

_RESTART_SECONDS = 15.0
"""So long the card of a process that has just been replaced may still be about."""


def check_fleet(patients: Mapping[str, Patient]) -> Iterator[Finding]:
    """Everything between the nodes that answer."""
    running = [patient for patient in patients.values() if patient.card is not None]
    known = [card for patient in running for card in patient.known]
    heads = [patient for patient in running if patient.host.role == "head"]
    for patient in running:
        assert patient.card is not None
        yield _node_id(patient, patient.card, known)
        yield _version(patient, patient.card, [other.card for other in running if other.card])
        if patient.host.role != "head":
            yield from (_identity(patient, patient.card, head) for head in heads)
        else:
            yield _quarantine(patient, patient.card)


def _node_id(patient: Patient, card: Card, known: Iterable[Card]) -> Finding:
    """Whether others know another process by this name which is not merely the one before."""
    since = card.epoch / 1e9 + _RESTART_SECONDS
    strangers = {
        other.instance
        for other in known
        if other.node == card.node and other.instance != card.instance and other.issued_at > since
    }
    if not strangers:
        return patient.say("node-id", "ok", f"one process is called {card.node}")
    return patient.say(
        "node-id",
        "failed",
        f"{len(strangers) + 1} running processes are called {card.node}",
        f"end the one that launchd on {patient.name} did not start: look for kakeya serve on the other Macs",
    )


def _version(patient: Patient, card: Card, cards: Iterable[Card]) -> Finding:
    versions = sorted({other.version for other in cards})
    if len(versions) == 1:
        return patient.say("version", "ok", f"{card.version} everywhere")
    return patient.say(
        "version", "warning", f"{card.version} here; the fleet has {', '.join(versions)}", "kakeya deploy all"
    )


def _identity(patient: Patient, card: Card, head: Patient) -> Finding:
    words = _difference(card, head)
    if words is None:
        return patient.say("identity", "ok", f"that of {head.name}, {(card.identity or '')[:12]}")
    if words == "":
        return patient.say("identity", "unknown", f"{head.name} does not tell its own", f"kakeya logs {head.name}")
    return patient.say(
        "identity",
        "failed",
        f"differs from {head.name}'s in {words}",
        f"kakeya deploy {head.name} {patient.name}: both get the model and the cache section of this inventory",
    )


def _quarantine(head: Patient, card: Card) -> Finding:
    if not card.quarantine:
        return head.say("quarantine", "ok", "its self-audit holds nobody")
    return head.say(
        "quarantine",
        "failed",
        f"it asks {', '.join(card.quarantine)} no more: the KV differed from its own",
        "kakeya quarantine list shows the evidence; once the cause is gone, kakeya quarantine release "
        f"{card.quarantine[0]}",
    )


def _difference(card: Card, head: Patient) -> str | None:
    """In what the two differ; None where in nothing, empty where that cannot be told."""
    assert head.card is not None
    try:
        identity = CacheIdentity.from_json(head.card.identity_document or {})
        runtime = Runtime.from_json(head.card.runtime or {})
    except (KeyError, TypeError, ValueError):
        return ""
    difference = find_difference(card, identity, runtime)
    if difference is None:
        return None
    said = difference.to_json()
    return f"{said['field']}: {said['theirs']} here, {said['ours']} there"


__all__ = ["check_fleet"]
