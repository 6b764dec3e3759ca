"""The OpenAI-style HTTP front of a head: checks requests, and shapes what the head says into answers."""

from __future__ import annotations

__all__: list[str] = []
