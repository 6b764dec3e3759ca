"""What the samples of a run add up to, worker by worker: pure arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from kakeya_ops.bench.crossover import compare_crossover
from kakeya_ops.bench.report import (
    LocalLine,
    WorkerResult,
    measured_crossover,
    summarize_link,
    summarize_worker,
)
from kakeya_ops.bench.samples import Sample


def samples_of_now(samples: Iterable[Sample], epochs: Mapping[str, int]) -> list[Sample]:
    """Those without the ones that an earlier process of a worker made; `epochs` are of the processes of now."""
    return [one for one in samples if one.node is None or epochs.get(one.node, one.epoch) == one.epoch]


def conclude_worker(
    worker: str, samples: Iterable[Sample], local: Sequence[LocalLine], link: Mapping[str, Any] | None
) -> WorkerResult:
    """All that `samples` say about `worker`, with `link` the way to it as the head tells it."""
    found = [one for one in samples if one.node == worker]
    lines = summarize_worker(found)
    return WorkerResult(
        node=worker,
        epoch=max((one.epoch or 0 for one in found), default=0),
        lines=lines,
        link=summarize_link(link, longest_hits(found)),
        crossover=measured_crossover(local, lines),
    )


def with_prediction(result: WorkerResult, estimates: Mapping[str, Any] | None) -> WorkerResult:
    """`result` with what ``/v1/network/estimates`` predicts of this worker, unchanged where it tells nothing."""
    peers = estimates.get("peers") if estimates else None
    found = [one for one in peers or () if isinstance(one, Mapping) and one.get("node") == result.node]
    if not found or "crossover_tokens" not in found[0]:
        return result
    tokens = found[0]["crossover_tokens"]
    predicted = int(tokens) if isinstance(tokens, int | float) else None
    ratio = compare_crossover(result.crossover, predicted)
    return replace(result, predicts=True, predicted_tokens=predicted, prediction_ratio=ratio)


def longest_hits(samples: Iterable[Sample]) -> list[Sample]:
    """The hits of the longest prompts: what the rate of a link shows best."""
    hits = [one for one in samples if one.kind == "remote_hit"]
    length = max((one.length for one in hits), default=0)
    return [one for one in hits if one.length == length]


def prefill_seconds(worker: str, length: int, samples: Iterable[Sample]) -> float | None:
    """The median of the worker's pure prefill times of prompts of about `length` tokens; None if none was told."""
    seconds = [
        one.compute_seconds
        for one in samples
        if one.kind == "remote" and one.node == worker and one.length == length and one.compute_seconds
    ]
    return median(seconds) if seconds else None


__all__ = ["conclude_worker", "longest_hits", "prefill_seconds", "samples_of_now", "with_prediction"]
