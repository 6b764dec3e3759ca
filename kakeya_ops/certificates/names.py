"""How certificates name nodes: a peer is known by its name, not by an address, which may come to be another's."""

from __future__ import annotations

_DOMAIN = "kakeya.internal"
"""``internal`` is reserved for private use, so that no such name exists in public."""


def dns_name(node: str) -> str:
    """The name that TLS compares: node ids are labels as DNS has them."""
    return f"{node}.{_DOMAIN}"


def uri(node: str) -> str:
    """The same for people and tools that look at a certificate."""
    return f"kakeya:node:{node}"


__all__ = ["dns_name", "uri"]
