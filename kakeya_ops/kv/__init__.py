"""KV as data: layout, identity, hashes, prefix search and the pool. No HTTP and no MLX here."""

from __future__ import annotations

__all__: list[str] = []
