"""A simulated Mac for each test that asks for one."""

from __future__ import annotations

from mac.conftest import mac

__all__ = ["mac"]
