"""Viewers are bounded, and pages that nobody ever looked at do not count for long."""

from __future__ import annotations

import asyncio

from nicegui.client import Client
from nicegui.page import page

from kakeya_ops.dashboard.viewers import CONNECT_SECONDS, MOST_VIEWERS, has_room


def test_there_is_room_for_so_many_and_again_when_pages_never_connect() -> None:
    async def come_and_go() -> None:
        clients = [Client(page("")) for _ in range(MOST_VIEWERS)]
        assert has_room()
        clients.append(Client(page("")))
        assert not has_room()
        clients[0].created -= CONNECT_SECONDS + 1
        assert has_room()
        assert clients[0].is_deleted
        for client in clients[1:]:
            client.delete()

    assert not Client.instances
    asyncio.run(come_and_go())
    assert not Client.instances
