"""Brings hosts to what the inventory says, proves that they are, and takes them back where that fails.

`plan` decides and touches nothing; `apply` does, one step after the other, each with a way back.
"""

from __future__ import annotations

__all__: list[str] = []
