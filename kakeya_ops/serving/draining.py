"""How long a server takes to end; apart from the server, so that whoever installs one need not import it."""

from __future__ import annotations

DRAIN_SECONDS = 10
"""How long requests that are being answered may take after the signal to stop."""

__all__ = ["DRAIN_SECONDS"]
