"""The page itself, and the app that serves it: NiceGUI, whose one app a process may have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files

from fastapi import FastAPI, Request
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

from kakeya_ops.dashboard import words
from kakeya_ops.dashboard.elements import Box, Words, mark
from kakeya_ops.dashboard.fleet_map import FleetMap, fleet_sentence
from kakeya_ops.dashboard.history import History
from kakeya_ops.dashboard.reading import Reader, Reading
from kakeya_ops.dashboard.requests import LastRequests, LiveRequests
from kakeya_ops.dashboard.totals import Counters, Totals
from kakeya_ops.dashboard.viewers import has_room

PERIOD_SECONDS = 1.0
_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><path fill="#2f7d74" '
    'd="M29 16C18 17 12 20 6 28 8 19 8 13 6 4c6 8 12 11 23 12z"/></svg>'
)


@dataclass(frozen=True)
class Viewing:
    """What pages are made from; `is_open` says whether a session may still see them."""

    reader: Reader
    is_open: Callable[[str], bool]


@asynccontextmanager
async def open_page_app(viewing: Viewing) -> AsyncIterator[ASGIApp]:
    """The app with the page at ``/``, for as long as the context is open."""
    outer = FastAPI(openapi_url=None)

    @ui.page("/", title="Kakeya", response_timeout=10)
    def index(request: Request) -> Response | None:
        if not has_room():
            ui.context.client.delete()
            return PlainTextResponse("The dashboard has as many viewers as it may have.", 503)
        _Page(viewing, request.state.tenant, request.state.session)
        return None

    nicegui_app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        outer,
        title="Kakeya",
        favicon=_ICON,
        dark=None,
        language="en-US",
        binding_refresh_interval=None,
        message_history_length=20,
        tailwind=False,
        show_welcome_message=False,
    )
    async with outer.router.lifespan_context(outer):
        yield outer


class _Page:
    """One viewer's page, shown anew once a second while it is looked at."""

    def __init__(self, viewing: Viewing, tenant: str, session: str) -> None:
        self._viewing = viewing
        self._tenant = tenant
        self._session = session
        ui.add_css(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))
        self._banner = _Banner(session)
        with Box("div", "page"):
            self._parts = (Totals(), FleetMap(), History(), LiveRequests(), LastRequests(), Counters())
        ui.timer(PERIOD_SECONDS, self._refresh)

    def _refresh(self) -> None:
        if not self._viewing.is_open(self._session):
            ui.navigate.to("/login")
            return
        reading = self._viewing.reader.read(self._tenant)
        self._banner.show(reading)
        for part in self._parts:
            part.show(reading)


class _Banner:
    """Whose page this is, and whether all is well."""

    def __init__(self, session: str) -> None:
        banner = Box("header", "banner")
        # What NiceGUI puts pages into is a main element.
        banner.move(ui.context.client.layout, target_index=0)
        with banner:
            with Box("div", "brand"):
                Box("span", "mark", aria_hidden="true")
                Words("h1", "Kakeya")
                self._node = Words("span", "", "note")
            self._status = Words("p", "waiting for the first figures", "status", role="status")
            if session:
                with Box("form", "leave", method="post", action="/logout"):
                    Words("button", "Log out", type="submit")

    def show(self, reading: Reading) -> None:
        head = reading.nodes["head"]
        self._node.say(f"{words.plain(head['node'])} · {words.plain(head['model'])}")
        sentence = fleet_sentence(reading)
        self._status.say(sentence[:1].upper() + sentence[1:])
        mark(self._status, "good" if sentence == "every node is usable" else "bad")


__all__ = ["PERIOD_SECONDS", "Viewing", "open_page_app"]
