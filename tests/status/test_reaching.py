"""Ways in both directions. What becomes of them in a status is in `test_judging`."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kakeya_ops.status.board import Told
from kakeya_ops.status.reaching import judge_reach
from kakeya_ops.views.status import status_view
from kakeya_ops.wire.cards import CardLink
from status.samples import AT, answering, api, back, card, judged, link, seen_by_head, silent, whole, with_api


def test_a_link_that_works_is_told_with_its_measures() -> None:
    reach = judge_reach("head", api({"allens": seen_by_head()}), "allens", whole())
    assert (reach.to_node, reach.to_head, reach.error, reach.port) == (True, None, None, 53051)


@pytest.mark.parametrize("down", [None, "no route"])
def test_the_node_itself_says_whether_it_reaches_the_head(down: str | None) -> None:
    said = api({"allens": seen_by_head(down)})
    for error in (None, "refused"):
        own = card("allens", links=(CardLink(node="vault", network="lan"), back(error)))
        reach = judge_reach("head", said, "allens", whole(allens=answering(own)))
        assert (reach.to_head, reach.one_way) == (error is None, (down is None) != (error is None))


def test_a_card_that_another_brought_is_no_answer() -> None:
    told = Told(card("allens", links=(back(),)), AT, "head")
    heard = whole(allens=silent("no route", told))
    assert judge_reach("head", api({"allens": seen_by_head("no route")}), "allens", heard).to_head is None


def test_a_node_that_the_head_does_not_know_is_not_reached() -> None:
    reach = judge_reach("head", api({}), "allens", whole())
    assert (reach.to_node, reach.error) == (False, None)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["link", "reachable", "issued_at", "conflict", "usable", "identity_match"])
LINKS = st.fixed_dictionaries({name: JSON for name in link()})


@settings(max_examples=25)
@given(st.dictionaries(FIELDS, JSON), LINKS, JSON)
def test_whatever_a_head_says_is_shown_or_left_out(known: dict[str, Any], said: dict[str, Any], summary: Any) -> None:
    heard = whole()
    for answer in (known, known | {"link": said, "reachable": True}):
        heard["head"] = with_api(heard["head"], api({"allens": answer}, fallbacks_by_reason=summary, by_worker=summary))
        status = judged(heard)
        json.dumps(status.to_json(), allow_nan=False)
        Console(file=io.StringIO(), width=80).print(status_view(status, 80))
