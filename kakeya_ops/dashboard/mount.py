"""The dashboard as one route of the head's API, which costs nothing until somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager

from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from kakeya_ops.dashboard.door import Door
from kakeya_ops.dashboard.other_loop import OtherLoop
from kakeya_ops.dashboard.reading import Observed, Reader
from kakeya_ops.openai_api.settings import ApiSettings


@contextmanager
def dashboard(observed: Observed, settings: ApiSettings) -> Iterator[Sequence[BaseRoute]]:
    """Routes to be put before the API's own, behind its keys, while the context is open."""
    reader = Reader(observed)

    def open_app() -> AbstractAsyncContextManager[ASGIApp]:
        # A second of work, and seventy megabytes: done in the page's own thread, when first somebody looks.
        from kakeya_ops.dashboard.page import Viewing, open_page_app

        return open_page_app(Viewing(reader, door.is_open))

    page = OtherLoop(open_app, "dashboard")
    door = Door(page, settings)
    try:
        yield (door,)
    finally:
        page.close()


__all__ = ["dashboard"]
