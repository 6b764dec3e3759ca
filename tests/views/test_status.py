"""A status on a page of any width."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from kakeya_ops.status import FleetStatus
from kakeya_ops.status.value import TOTALS
from kakeya_ops.views.status import status_view
from status.samples import answering, api, back, card, judged, seen_by_head, silent, whole, with_api


def drawn(status: FleetStatus, width: int, *, ascii_only: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(status_view(status, width, ascii_only=ascii_only))
    return out.getvalue()


def words(status: FleetStatus, width: int = 200) -> str:
    return " ".join(drawn(status, width).split())


@pytest.mark.parametrize("width", [1, 20, 60, 80, 100, 140, 200, 300])
def test_no_line_is_wider_than_the_page(width: int) -> None:
    text = drawn(judged(whole(allens=silent("a reason that is rather long, as reasons often are"))), width)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [60, 80, 140, 300])
def test_nothing_is_left_out_at_any_width(width: int) -> None:
    said = words(judged(whole()), width)
    for word in (
        "head",
        "allens",
        "yes",
        "healthy",
        "equal",
        "1.0 of 512.0 MiB",
        "loopback 500",
        "not asked",
        "1 m 40 s",
    ):
        assert word in said
    assert "– of 1300" in said
    for name in TOTALS:
        assert f"{name.value} " in said


def test_what_is_wrong_is_said_in_words() -> None:
    said = words(judged(whole(allens=silent("no route"))))
    assert "1 of 2 hosts serve" in said
    assert "allens unreachable: no route" in said


def test_what_is_not_known_is_neither_yes_nor_no() -> None:
    status = judged(whole(head=silent()))
    said = words(status)
    assert "0 of 2 hosts serve" in said
    assert "allens worker unknown healthy" in said
    assert "allens not known whether head can use it" in said


def test_a_way_that_leads_in_one_direction_only_is_shown_as_such() -> None:
    head = with_api(whole()["head"], api({"allens": seen_by_head("no route")}))
    reaching = answering(card("allens", links=(back(),)))
    said = words(judged(whole(head=head, allens=reaching)), 80)
    assert "link only allens to head" in said
    assert "one way only: it reaches head, not the other way" in said
    deaf = answering(card("allens", links=(back("refused"),)))
    assert "link only head to allens" in words(judged(whole(allens=deaf)), 80)


def test_reasons_of_fallbacks_and_what_each_worker_did_are_told() -> None:
    answer = api(
        {"allens": seen_by_head()}, fallbacks_by_reason={"timeout": 3}, by_worker={"allens": {"bytes_received": 2048}}
    )
    said = words(judged(whole(head=with_api(whole()["head"], answer))))
    assert "fallbacks by reason timeout 3" in said
    assert "by allens bytes_received 2.0 KiB" in said


def test_without_a_head_totals_are_unknown_and_not_nothing() -> None:
    assert "total not known: no head tells" in words(judged(whole(head=silent())))


def test_words_of_others_cannot_steer_the_terminal() -> None:
    evil = answering(card("allens", version="\x1b[2J0.1", healthy=False, reason="\x1b]0;gone\x07"))
    assert "\x1b" not in drawn(judged(whole(allens=evil)), 300)
    status = dataclasses.replace(judged(whole()), conflicts=("two \x1b[31mnodes",), notes=("[bold]not markup[/bold]",))
    text = drawn(status, 200)
    assert "\x1b" not in text
    assert "[bold]not markup[/bold]" in text


def test_a_terminal_without_unicode_gets_none() -> None:
    busy = dataclasses.replace(answering(card("allens")), rates=(0.0, 50.0, 100.0))
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    console = Console(file=out, width=300)
    console.print(status_view(judged(whole(allens=busy)), 300, ascii_only=console.options.ascii_only))
    out.flush()
    text = out.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert ".+@" in text.replace(" ", "")
