"""The page's few kinds of element, as a browser has them."""

from __future__ import annotations

import pytest

from dashboard.conftest import Watched
from kakeya_ops.dashboard.elements import Box, Cells, Rows, Section, Table, Words

pytestmark = pytest.mark.system("chromium")


def test_sections_are_named_by_their_headings(seen: Watched) -> None:
    for section in seen.page.locator("main > section").all():
        name = section.get_attribute("aria-labelledby")
        assert section.locator(f"h2#{name}").count() == 1


def test_tables_have_headings_of_columns_and_rows(seen: Watched) -> None:
    table = seen.page.locator("#counters table")
    assert table.locator("thead th[scope=col]").count() == 4
    rows = table.locator("tbody tr").count()
    assert rows > 20
    assert table.locator("tbody th[scope=row]").count() == rows


def test_what_does_not_change_is_not_sent(seen: Watched) -> None:
    sent: list[str] = []
    page = seen.context.new_page()
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sent.append(str(frame))))
    page.goto(seen.page.url)
    page.locator("#totals .value").first.wait_for()
    page.wait_for_function("/^\\d/.test(document.querySelector('[data-value=requests]').textContent)")
    start = len(sent)
    page.wait_for_timeout(3500)
    later = [frame for frame in sent[start:] if "update" in frame]
    assert later
    assert not any("Prompt tokens" in frame for frame in later)
    page.close()


def test_each_kind_says_what_it_is() -> None:
    assert all(kind.__doc__ for kind in (Box, Cells, Rows, Section, Table, Words))
