"""One host in one role, assessed: the question, its answer, and what would change it. Commands and gates share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kakeya_ops.errors import FootprintUnknown, KakeyaError, RefusedError
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.memory.advice import Change, Question, advise
from kakeya_ops.memory.demand import NO_OVERRIDES, Overrides, workload_of
from kakeya_ops.memory.facts import pinned
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.memory.model_shape import read_shape
from kakeya_ops.memory.shape import ModelShape
from kakeya_ops.memory.verdict import MemoryVerdict, Thresholds, judge

Model = ModelShape | KakeyaError
"""What is known of the model, or why nothing is."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A host's memory, and the processes on it that will have ended by then, whose memory counts as free."""

    memory: HostMemory
    leaving: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Assessment:
    """The verdict on `host` doing `question.load`; `model_error` says why the model's footprint is not known."""

    host: str
    question: Question
    model_error: KakeyaError | None = None

    @cached_property
    def verdict(self) -> MemoryVerdict:
        """The answer."""
        if self.model_error is not None and self.question.load.role != "cache":
            return judge(self.model_error, self.question.host, self.question.thresholds)
        return self.question.judge()

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """What would make it fit."""
        return () if self.model_error is not None else advise(self.question)

    @property
    def summary(self) -> str:
        """The answer and its reason, as one line."""
        return f"{self.verdict.answer}: {self.verdict.reason}"


class DoesNotFit(RefusedError):
    """A node's model does not fit its host; `assessment` has the figures."""

    def __init__(self, assessment: Assessment) -> None:
        role = assessment.question.load.role
        super().__init__(
            f"{assessment.host} as a {role} does not fit: {assessment.verdict.reason}",
            hint=f"kakeya memory {assessment.host} shows every term and what would help; --force REASON goes on anyway",
        )
        self.assessment = assessment


def read_model(path: Path) -> Model:
    """The shape of the model in `path`, or why its footprint is not known.

    Raises `ModelDirectoryError` for a directory that is not a whole model.
    """
    try:
        return read_shape(path)
    except FootprintUnknown as error:
        return error


def assess(
    inventory: Inventory,
    host: ResolvedHost,
    model: Model | None,
    surroundings: Surroundings,
    overrides: Overrides = NO_OVERRIDES,
) -> Assessment:
    """Judge `host` by what it is like. `model` may be None for a cache peer, which loads none."""
    shape, error = (None, model) if isinstance(model, KakeyaError) else (model, None)
    load = workload_of(inventory, host, overrides)
    thresholds = Thresholds.of(inventory.memory)
    return Assessment(host.name, Question(shape, load, surroundings.memory, thresholds, surroundings.leaving), error)


def facts_of(host: ResolvedHost, read: HostMemory | None) -> HostMemory | None:
    """What was read of `host`, or else the inventory's word for its memory; None where there is neither."""
    if read is not None and read.total_bytes.nbytes is not None:
        return read
    return read if host.memory_gb is None else pinned(host.memory_gb)


__all__ = ["Assessment", "DoesNotFit", "Model", "Surroundings", "assess", "facts_of", "read_model"]
