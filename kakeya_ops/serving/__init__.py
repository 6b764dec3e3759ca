"""The machinery of every node: jobs, cards, scheduling, receipts, counters, and the servers that run it."""

from __future__ import annotations

__all__: list[str] = []
