"""What would change in a service, as lines of a unified diff."""

from __future__ import annotations

import difflib

from kakeya_ops.deploy.plan import HostPlan
from kakeya_ops.deploy.redact import redact
from kakeya_ops.observe.state import Unknown


def plist_diff(plan: HostPlan) -> list[str]:
    """The property list on the host against the one that it shall have, without what must not be seen."""
    if plan.desired is None:
        return []
    old = plan.state.plist or b""
    return _diff(old, plan.desired.plist, f"{plan.places.plist} on {plan.host.name}", "planned")


def loaded_diff(plan: HostPlan) -> list[str]:
    """The arguments that launchd runs the service with against those in the file, where only the file is as planned."""
    jobs = () if isinstance(plan.state.jobs, Unknown) else plan.state.jobs
    if plan.desired is None or not jobs or plan.state.plist != plan.desired.plist:
        return []
    loaded, planned = jobs[0].service, plan.desired.service.program_arguments
    if loaded.loaded_with(planned):
        return []
    old, new = ("\n".join(arguments).encode() for arguments in (loaded.program_arguments, planned))
    return _diff(old, new, f"arguments loaded in {jobs[0].domain.target}", "planned")


def served_diff(plan: HostPlan) -> list[str]:
    """The inventory that the service is served from against the one that it shall be: the values that change."""
    if plan.desired is None or plan.state.served is None:
        return []
    return _diff(
        plan.state.served, plan.desired.inventory, f"inventory that {plan.host.name} is served from", "planned"
    )


def plan_diff(plan: HostPlan) -> list[str]:
    """Everything that would change in the service."""
    return plist_diff(plan) + loaded_diff(plan) + served_diff(plan)


def _diff(old: bytes, new: bytes, old_name: str, new_name: str) -> list[str]:
    before, after = (redact(data.decode("utf-8", "replace")).splitlines() for data in (old, new))
    return list(difflib.unified_diff(before, after, old_name, new_name, lineterm="", n=2))


__all__ = ["loaded_diff", "plan_diff", "plist_diff", "served_diff"]
