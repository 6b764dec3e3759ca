"""The door to other nodes: the only code that calls them, and the one place where their failures become `PeerError`."""

from __future__ import annotations

__all__: list[str] = []
