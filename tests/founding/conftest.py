"""The simulated Mac that this machine is while a test runs."""

from __future__ import annotations

from observe.conftest import mac

__all__ = ["mac"]
