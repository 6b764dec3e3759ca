"""Whether what a node needs fits what its host has: four inequalities, and the one answer that follows from them.

Three decide: the GPU's working set, the longest single buffer, and the machine's memory less what its system and other
servers keep. The fourth, what is available now, is a live figure that understates what macOS can free (an ordinary
desktop and the same machine with every app quit differ by half of its memory), so alone it makes an answer *tight* and
never refuses. What is not known makes the answer *unknown*, unless something else is surely too large.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Literal

from kakeya_ops.errors import KakeyaError
from kakeya_ops.inventory.sections import MemorySection
from kakeya_ops.memory.footprint import Footprint
from kakeya_ops.memory.host import Figure, HostMemory, Process
from kakeya_ops.units import render_bytes

Answer = Literal["fits", "tight", "does not fit", "unknown"]
InequalityName = Literal["working set", "single buffer", "total", "available now"]
Outcome = Literal["holds", "narrow", "fails", "unknown", "not applicable"]

GIB = 2**30
LEAST_RESERVE_BYTES = 2 * GIB
RESERVE_SHARE = 8
"""An eighth of the machine, if that is more, is left to its system."""
_SHOWN_PROCESSES = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the lines are drawn: the inventory's `memory` section. `reserve_bytes` of None is the default rule."""

    reserve_bytes: int | None = None
    tight_percent: float = 10.0

    @classmethod
    def of(cls, section: MemorySection) -> Thresholds:
        """Those of an inventory."""
        return cls(section.reserve_bytes, section.tight_percent)

    def reserve_of(self, total_bytes: int) -> int:
        """What is left to the system of a machine with `total_bytes`."""
        if self.reserve_bytes is not None:
            return self.reserve_bytes
        return max(LEAST_RESERVE_BYTES, total_bytes // RESERVE_SHARE)

    def is_narrow(self, need_bytes: int, limit_bytes: int) -> bool:
        """Whether so little of the limit is left that a fit is called tight."""
        return (limit_bytes - need_bytes) * 100 < limit_bytes * self.tight_percent


@dataclass(frozen=True, slots=True)
class Inequality:
    """``need_bytes <= limit_bytes``, and whether it holds. `sentence` is all of it in words, for people."""

    name: InequalityName
    outcome: Outcome
    need_bytes: int
    limit_bytes: int | None
    sentence: str

    @property
    def holds(self) -> bool | None:
        """None where it is not known, or does not apply."""
        return {"holds": True, "narrow": True, "fails": False}.get(self.outcome)

    @property
    def left_bytes(self) -> int | None:
        """What is left of the limit, negative where it is exceeded."""
        return None if self.limit_bytes is None else self.limit_bytes - self.need_bytes


@dataclass(frozen=True)
class MemoryVerdict:
    """The answer, and all that it follows from.

    `need` is None where it is not known, and `missing` then names the lacking fact, as it does for lacking facts of the
    host. `pinned` says that the host was not asked and the inventory's word was taken.
    """

    answer: Answer
    need: Footprint | None
    inequalities: tuple[Inequality, ...] = ()
    missing: tuple[str, ...] = ()
    pinned: bool = False

    @property
    def refuses(self) -> bool:
        """Whether it is a no."""
        return self.answer == "does not fit"

    @property
    def first_failure(self) -> Inequality | None:
        """The first inequality that does not hold, a live figure's last; None when all do."""
        return next((one for one in self.inequalities if one.outcome == "fails"), None)

    @property
    def narrowest(self) -> Inequality | None:
        """The inequality that leaves the smallest share of its limit."""
        known = [one for one in self.inequalities if one.holds is not None and one.limit_bytes]
        return min(known, key=lambda one: (one.left_bytes or 0) / (one.limit_bytes or 1), default=None)

    @property
    def reason(self) -> str:
        """Why, in one sentence; of what is unknown, the facts that are lacking."""
        if self.answer == "unknown":
            return "; ".join(self.missing)
        deciding = self.first_failure or self.narrowest
        return deciding.sentence if deciding else "nothing is needed"


@dataclass(frozen=True)
class _Judge:
    """One need against one host."""

    need: Footprint
    host: HostMemory
    thresholds: Thresholds
    leaving: frozenset[int]
    others: tuple[Process, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "others", other_servers(self.host, self.leaving))

    def inequalities(self) -> Iterator[Inequality]:
        yield self._working_set()
        yield self._single_buffer()
        yield self._total()
        yield self._available()

    def _working_set(self) -> Inequality:
        figure, need = self.host.working_set_bytes, self.need.gpu_bytes
        if self._has_no_gpu:
            return Inequality("working set", "not applicable", need, None, "this system has no GPU working set")
        limit = _known(figure)
        if limit is None:
            return self._unknown("working set", need, figure)
        return self._compare(
            "working set", need, limit - self._taken_bytes, f"the GPU's working set ({figure.source}){self._less}"
        )

    def _single_buffer(self) -> Inequality:
        figure, need = self.host.max_buffer_bytes, self.need.largest_buffer_bytes
        if self._has_no_gpu:
            return Inequality("single buffer", "not applicable", need, None, "this system does not bound a buffer")
        limit = _known(figure)
        if limit is None:
            return self._unknown("single buffer", need, figure)
        about = f"the longest buffer of the GPU ({figure.source}), for {self.need.largest_buffer}"
        return self._compare("single buffer", need, limit, about)

    def _total(self) -> Inequality:
        figure, need = self.host.total_bytes, self.need.total_bytes
        total = _known(figure)
        if total is None:
            return self._unknown("total", need, figure)
        reserve = self.thresholds.reserve_of(total)
        about = f"{render_bytes(total)} of memory less {render_bytes(reserve)} for the system{self._less}"
        return self._compare("total", need, total - reserve - self._taken_bytes, about)

    def _available(self) -> Inequality:
        need, immediate = self.need.total_bytes, self.host.immediate_bytes
        if not immediate:  # a probe that read 0 read nothing
            return self._unknown("available now", need, Figure(None, "absent", _why_absent(self.host)))
        freed = sum(process.footprint_bytes for process in self.host.processes if process.pid in self.leaving)
        optimistic = self.host.optimistic_bytes
        later = "" if optimistic is None else f", {render_bytes(optimistic + freed)} by dropping and swapping"
        found = self._compare("available now", need, immediate + freed, f"what is free at once{later}")
        if found.outcome != "fails":
            return found
        advice = "close apps, or let the system swap" + _named(self._closable)
        return Inequality(found.name, found.outcome, need, found.limit_bytes, f"{found.sentence}: {advice}")

    def _compare(self, name: InequalityName, need: int, limit: int, about: str) -> Inequality:
        left = limit - need
        sentence = f"{name}: {render_bytes(need)} of {render_bytes(max(limit, 0))}, {about}"
        if left < 0:
            return Inequality(name, "fails", need, limit, f"{sentence}; {render_bytes(-left)} too much")
        narrow = self.thresholds.is_narrow(need, limit)
        return Inequality(
            name, "narrow" if narrow else "holds", need, limit, f"{sentence}; {render_bytes(left)} are left"
        )

    def _unknown(self, name: InequalityName, need: int, figure: Figure) -> Inequality:
        return Inequality(name, "unknown", need, None, f"{name} of the host ({figure.source})")

    @property
    def _has_no_gpu(self) -> bool:
        return self.host.system == "linux" and self.host.working_set_bytes.nbytes is None

    @property
    def _taken_bytes(self) -> int:
        return sum(process.footprint_bytes for process in self.others)

    @property
    def _less(self) -> str:
        return f" less {render_bytes(self._taken_bytes)} of{_named(self.others)}" if self.others else ""

    @property
    def _closable(self) -> tuple[Process, ...]:
        return tuple(process for process in self.host.processes if process.pid not in self.leaving)


def judge(
    need: Footprint | KakeyaError,
    host: HostMemory,
    thresholds: Thresholds = Thresholds(),
    *,
    leaving: Collection[int] = (),
) -> MemoryVerdict:
    """Whether `need` fits `host`. Never raises.

    A `KakeyaError` in place of the need says why there is no figure, and the answer is unknown. `leaving` are the
    process ids of what will have ended by then, such as the service that is replaced: what they hold counts as free.
    """
    pinned = host.total_bytes.origin == "pinned"
    if isinstance(need, KakeyaError):
        missing = getattr(need, "missing", need.message)
        return MemoryVerdict("unknown", None, missing=(str(missing),), pinned=pinned)
    inequalities = tuple(_Judge(need, host, thresholds, frozenset(leaving)).inequalities())
    unknown = [one for one in inequalities if one.outcome == "unknown"]
    if pinned:  # nobody expects a live figure of a host that was not asked
        unknown = [one for one in unknown if one.name != "available now"]
    answer = _answer(inequalities, bool(unknown))
    missing_facts = tuple(one.sentence for one in unknown)
    return MemoryVerdict(answer, need, inequalities, missing_facts, pinned)


def other_servers(host: HostMemory, leaving: Collection[int] = ()) -> tuple[Process, ...]:
    """Processes that hold models or pools and will still be there; what they have wired, macOS cannot free."""
    return tuple(one for one in host.processes if (one.is_mlx_server or one.is_kakeya) and one.pid not in leaving)


def _answer(inequalities: tuple[Inequality, ...], unknown: bool) -> Answer:
    if any(one.outcome == "fails" and one.name != "available now" for one in inequalities):
        return "does not fit"
    if unknown:
        return "unknown"
    return "tight" if any(one.outcome in ("narrow", "fails") for one in inequalities) else "fits"


def _known(figure: Figure) -> int | None:
    """The figure; one that is not positive is a probe that failed."""
    return figure.nbytes if figure.nbytes is not None and figure.nbytes > 0 else None


def _why_absent(host: HostMemory) -> str:
    reasons = {gap.fact: gap.reason for gap in host.gaps}
    if host.total_bytes.origin == "pinned":
        return "the host was not asked"
    return reasons.get("immediate_bytes", "the host did not tell")


def _named(processes: tuple[Process, ...]) -> str:
    named = ", ".join(
        f"{one.name} (pid {one.pid}, {render_bytes(one.footprint_bytes)})" for one in processes[:_SHOWN_PROCESSES]
    )
    return f" {named}" if named else ""


__all__ = [
    "LEAST_RESERVE_BYTES",
    "RESERVE_SHARE",
    "Answer",
    "Inequality",
    "InequalityName",
    "MemoryVerdict",
    "Outcome",
    "Thresholds",
    "judge",
    "other_servers",
]
