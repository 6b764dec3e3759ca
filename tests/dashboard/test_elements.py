"""The page's few kinds of element: text stays text, and what does not change is not sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nicegui.client import Client
from nicegui.page import page

from kakeya_ops.dashboard.elements import Box, Cells, Rows, Section, Table, Words, attribute, mark


def on_a_page(act: Callable[[Client], None]) -> None:
    async def make() -> None:
        with Client(page("")) as client:
            act(client)
        client.delete()

    asyncio.run(make())


def test_only_changes_are_sent() -> None:
    def act(client: Client) -> None:
        words = Words("p", "one", "note", aria_label="first", for_="x")
        assert (words.props["aria-label"], words.props["for"]) == ("first", "x")
        client.outbox.updates.clear()
        words.say("one")
        attribute(words, "aria-label", "first")
        assert not client.outbox.updates
        words.say("<b>two")
        assert words.text == "<b>two"
        mark(words, "bad")
        assert list(client.outbox.updates) == [words.id]

    on_a_page(act)


def test_there_are_as_many_rows_as_values() -> None:
    def act(client: Client) -> None:
        table = Table("Numbers", ("Name", "Value"))
        rows = Rows(table.body, lambda: Cells(2))

        def shown() -> list[list[str]]:
            return [[cell.text for cell in row.default_slot.children] for row in table.body.default_slot.children]  # type: ignore[attr-defined]

        for values in ([("a", "1")], [("a", "1"), ("b", "2"), ("c", "3")], [("c", "3")], []):
            rows.show(values)
            assert shown() == [list(value) for value in values]

    on_a_page(act)


def test_a_row_begins_with_its_heading_and_a_section_with_its_own() -> None:
    def act(client: Client) -> None:
        with Box("tbody"):
            cells = Cells(3)
        assert [cell.tag for cell in cells.cells] == ["th", "td", "td"]
        assert cells.cells[0].props["scope"] == "row"
        section = Section("fleet", "Fleet")
        assert section.body.props["aria-labelledby"] == "fleet-title"

    on_a_page(act)
