"""Ways in both directions. What becomes of them in a status is in `test_judging`."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kakeya_ops.status.reaching import judge_reach
from kakeya_ops.views.status import status_view
from status.samples import AT, answering, api, card, judged, link, seen_by_head, whole, with_api


def test_a_link_that_works_is_told_with_its_measures() -> None:
    reach = judge_reach("head", api({"allens": seen_by_head()}), "allens", whole())
    assert (reach.to_node, reach.to_head, reach.error, reach.port) == (True, None, None, 53051)


def test_old_cards_of_each_other_prove_no_way_back() -> None:
    down = api({"allens": seen_by_head("no route", issued_at=AT - 10)})
    old = whole(allens=answering(card("allens"), card("head", "head", issued_at=AT - 10)))
    assert judge_reach("head", down, "allens", old).to_head is False


def test_a_new_card_of_the_head_at_the_node_proves_one() -> None:
    down = api({"allens": seen_by_head("no route", issued_at=AT - 10)})
    new = whole(allens=answering(card("allens"), card("head", "head", issued_at=AT - 1)))
    assert judge_reach("head", down, "allens", new).one_way


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
