from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from kakeya_ops.serving.receipts import Fallback, Receipt
from kakeya_ops.serving.timeline import Span, explain_gain, timeline
from kakeya_ops.verify.explain import Explanation, Seal
from kakeya_ops.views.explain import bar, explanation
from serving.test_receipts import JOINT, RECEIPT, REMOTE
from serving.test_timeline import BROKEN, COMPUTED, LOCAL

SEALS = (Seal("head", "valid", "signed with the fleet's key"), Seal("worker", "wrong", "not the fleet's"))


def explained(receipt: Receipt) -> Explanation:
    return Explanation(receipt, receipt.digest, timeline(receipt), explain_gain(receipt), SEALS)


def text(renderables: list[RenderableType], width: int = 160) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width)
    for renderable in renderables:
        console.print(renderable)
    return out.getvalue()


def numbers(value: object) -> set[str]:
    """The whole numbers that a reader of `value` should find."""
    return set(re.findall(r"\d+", str(value)))


@pytest.mark.parametrize("receipt", [COMPUTED, LOCAL, BROKEN, replace(RECEIPT, forgotten_tokens=99)])
def test_every_number_of_a_receipt_is_there(receipt: Receipt) -> None:
    shown = text(explanation(explained(receipt)))
    document = receipt.to_json()
    for name in ("prompt_tokens", "cached_tokens", "local_computed_tokens", "local_pool_tokens", "forgotten_tokens"):
        assert numbers(document[name]) <= numbers(shown)
    for word in (receipt.request_id, receipt.tenant, receipt.identity, receipt.digest, receipt.decision.reason):
        assert word in shown
    if remote := receipt.remote:
        for word in (str(remote.payload_bytes), str(remote.computed_tokens), remote.blocks_digest, str(remote.job)):
            assert word in shown


def test_every_source_is_named_with_what_it_brought() -> None:
    shown = " ".join(text(explanation(explained(JOINT))).split())
    assert "of that from worker 7 blocks, " in shown
    assert "of that from cache 3 blocks, " in shown
    assert "broke: unreachable" in shown


def test_the_sentence_comes_first_and_the_signatures_last() -> None:
    lines = text(explanation(explained(COMPUTED))).splitlines()
    assert lines[0].startswith("A faster worker: ")
    assert " ".join(lines[-3].split()) == "head valid signed with the fleet's key"
    assert " ".join(lines[-2].split()) == "worker wrong not the fleet's"


def test_80_columns_lose_nothing() -> None:
    shown = text(explanation(explained(COMPUTED)), 80)
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert REMOTE.blocks_digest in shown.replace("\n", "").replace(" ", "")


def test_words_from_elsewhere_cannot_steer_the_terminal() -> None:
    hostile = replace(BROKEN, fallback=Fallback("\x1b[2J", "timeout", "\x1b]0;x\x07 [bold]no markup[/]"))
    shown = text(explanation(explained(hostile)))
    assert "\x1b" not in shown
    assert "[bold]no" in shown


@given(began=st.floats(0, 1e6), seconds=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_a_bar_is_always_as_wide_as_all_and_never_empty(began: float, seconds: float, more: float) -> None:
    drawn = bar(Span("queue", "head", began, seconds, ""), began + seconds + more)
    assert len(drawn) == 14
    assert re.fullmatch(r"·*█+·*", drawn)
