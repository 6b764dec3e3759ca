"""How many may look at once. Whoever has gone is forgotten by NiceGUI a few seconds later."""

from __future__ import annotations

from nicegui.client import Client

MOST_VIEWERS = 16
CONNECT_SECONDS = 5.0
"""After so long a page that has not connected makes room for others, if there is none."""


def has_room() -> bool:
    """Whether the viewer who has come last is not one too many."""
    if len(Client.instances) > MOST_VIEWERS:
        Client.prune_instances(client_age_threshold=CONNECT_SECONDS)
    return len(Client.instances) <= MOST_VIEWERS


__all__ = ["CONNECT_SECONDS", "MOST_VIEWERS", "has_room"]
