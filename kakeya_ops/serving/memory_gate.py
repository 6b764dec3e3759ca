"""The memory verdict at a server's own start, on the facts of the machine that it runs on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.assessment import Assessment, DoesNotFit, Surroundings, assess, facts_of, read_model
from kakeya_ops.memory.host import Figure, HostMemory
from kakeya_ops.memory.reading import read_host_memory
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.serving.startup import Startup
from kakeya_ops.settings import expand_here

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Admittance:
    """What becomes of a node whose model does not fit.

    It refuses to start; `supervised`, by something that would start it again for ever, it stays up without its model.
    `force` is a person's reason for starting it all the same. `revived` is like supervised, but by something that gives
    up on a node that does not start.
    """

    supervised: bool = False
    force: str | None = None
    revived: bool = False

    @property
    def starts_again(self) -> bool:
        """Whether a process that ends is started again."""
        return self.supervised or self.revived


REFUSE = Admittance()


def check_memory(startup: Startup, admittance: Admittance, tell: Tell) -> Assessment | None:
    """Whether the node may load its model: None if so, else why it is to stay up without it.

    What is tight, unknown or forced is told and goes on. Raises `DoesNotFit`, the sockets closed, where it must not
    start, and `ModelDirectoryError`.
    """
    try:
        assessment = assess_here(startup.inventory, startup.host)
        if assessment.verdict.answer != "fits":
            tell(f"memory: {assessment.summary}")
        if not assessment.verdict.refuses:
            return None
        if admittance.force is not None:
            tell(f"memory: starting all the same: {admittance.force}")
            return None
        if admittance.supervised:
            return assessment
        raise DoesNotFit(assessment)
    except BaseException:
        for listener in startup.sockets:
            listener.close()
        raise


def assess_here(inventory: Inventory, host: ResolvedHost) -> Assessment:
    """The verdict on this machine as `host`. Raises `ModelDirectoryError`."""
    model = read_model(expand_here(inventory.model.path))
    facts = facts_of(host, _read_here(host)) or _nothing_known("this machine does not tell")
    return assess(inventory, host, model, Surroundings(facts, frozenset({os.getpid()})))


def _read_here(host: ResolvedHost) -> HostMemory:
    try:
        return read_host_memory(LocalRunner(host.name), host.install_root)
    except KakeyaError as error:
        return _nothing_known(error.message)


def _nothing_known(reason: str) -> HostMemory:
    absent = Figure(None, "absent", reason)
    return HostMemory(system=None, total_bytes=absent, working_set_bytes=absent, max_buffer_bytes=absent)


__all__ = ["REFUSE", "Admittance", "assess_here", "check_memory"]
