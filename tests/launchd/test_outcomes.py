from __future__ import annotations

from typing import get_args

import pytest

from kakeya_ops.launchd.launchctl import Verb
from kakeya_ops.launchd.outcomes import TEXTS, Outcome, classify, describe, hint_for
from mac import codes

VERBS: tuple[Verb, ...] = get_args(Verb)


@pytest.mark.parametrize(
    ("verb", "status", "outcome"),
    [
        ("bootstrap", 0, Outcome.OK),
        ("bootstrap", 5, Outcome.TRANSIENT),
        ("bootstrap", 17, Outcome.UNDER_WAY),
        ("bootstrap", 37, Outcome.UNDER_WAY),
        ("bootstrap", 119, Outcome.DISABLED),
        ("bootstrap", 112, Outcome.NO_DOMAIN),
        ("bootstrap", 124, Outcome.NO_DOMAIN),
        ("bootstrap", 125, Outcome.NO_DOMAIN),
        ("bootstrap", 2, Outcome.REFUSED),
        ("bootstrap", 3, Outcome.REFUSED),
        ("bootstrap", 113, Outcome.REFUSED),
        ("bootstrap", 122, Outcome.REFUSED),
        ("bootstrap", 134, Outcome.REFUSED),
        ("bootstrap", 64, Outcome.REFUSED),
        ("bootout", 0, Outcome.OK),
        ("bootout", 3, Outcome.GONE),
        ("bootout", 113, Outcome.GONE),
        ("bootout", 5, Outcome.TRANSIENT),
        ("bootout", 36, Outcome.UNDER_WAY),
        ("bootout", 37, Outcome.UNDER_WAY),
        ("bootout", 125, Outcome.NO_DOMAIN),
        ("print", 113, Outcome.GONE),
        ("print", 112, Outcome.NO_DOMAIN),
        ("print", 125, Outcome.NO_DOMAIN),
        ("print", 1, Outcome.REFUSED),
        ("kickstart", 37, Outcome.UNDER_WAY),
        ("kickstart", 113, Outcome.GONE),
        ("kickstart", 5, Outcome.TRANSIENT),
        ("kickstart", 150, Outcome.REFUSED),
        ("enable", 113, Outcome.REFUSED),
        ("enable", 17, Outcome.REFUSED),
    ],
)
def test_the_exit_code_decides(verb: Verb, status: int, outcome: Outcome) -> None:
    assert classify(status, verb) is outcome


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("status", [-1, 1, 2, 64, 107, 127, 159, 255])
def test_what_is_not_known_is_a_refusal(verb: Verb, status: int) -> None:
    assert classify(status, verb) is Outcome.REFUSED


@pytest.mark.parametrize("verb", VERBS)
def test_only_0_is_fine(verb: Verb) -> None:
    assert [status for status in range(256) if classify(status, verb) is Outcome.OK] == [0]


def test_the_texts_are_macoss() -> None:
    assert {status: TEXTS[status] for status in codes.TEXTS} == codes.TEXTS
    assert describe(37) == "37: Operation already in progress"
    assert describe(99) == "99: unknown to this table"


def test_hints_are_for_known_codes() -> None:
    assert {status for status in range(256) if hint_for(status)} <= set(TEXTS)
    assert "still loaded" in (hint_for(5) or "")
    assert hint_for(0) is None
