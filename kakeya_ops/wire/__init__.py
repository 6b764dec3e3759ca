"""The peer protocol as bytes: signatures, frames and bodies. No I/O here."""

from __future__ import annotations

__all__: list[str] = []
