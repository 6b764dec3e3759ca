"""What is on the hosts now: read-only, every host in parallel, one script a host. Nothing here changes anything."""

from __future__ import annotations

from kakeya_ops.observe.fanout import Outcome, run_on
from kakeya_ops.observe.host import observe_host
from kakeya_ops.observe.state import Fact, HostState, Unknown

__all__ = ["Fact", "HostState", "Outcome", "Unknown", "observe_host", "run_on"]
