"""The bench against a running head, within a time, and its report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kakeya_ops.bench.asking import Asker
from kakeya_ops.bench.bystanders import OwnWork, describe_bystanders, take_census
from kakeya_ops.bench.compare import Comparing, judge_comparisons
from kakeya_ops.bench.conclusion import (
    conclude_worker,
    longest_hits,
    prefill_seconds,
    samples_of_now,
    with_prediction,
)
from kakeya_ops.bench.judging import Besides, judge_worker
from kakeya_ops.bench.plan import BenchPlan
from kakeya_ops.bench.raw import copy_seconds
from kakeya_ops.bench.report import BenchReport, JitterLine, WorkerResult, summarize_local
from kakeya_ops.bench.rounds import Rounds, Tell
from kakeya_ops.bench.samples import Sample
from kakeya_ops.bench.side_by_side import CHUNKED, DEFAULTS, compare_with_mlx_lm
from kakeya_ops.bench.surroundings import is_loopback, raw_link
from kakeya_ops.bench.targets import demand
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.workers import find_workers


def run_bench(plan: BenchPlan, tell: Tell) -> BenchReport:
    """Measure the fleet of the head at `plan.url`; `tell` is told what is going on.

    Raises `PeerUnreachable` or `PeerTimeout` if the head does not answer, `PeerRefused` if it refuses the bench.
    """
    with HeadClient(plan.url, plan.api_key) as client:
        return _run(plan, Asker(plan, client), tell)


def _run(plan: BenchPlan, asker: Asker, tell: Tell) -> BenchReport:
    began = time.monotonic()
    tell("waiting for the workers' cards")
    network = asker.fresh_network()
    asker.model = str((network.get("head") or {}).get("model") or "")
    check, cards = find_workers(nodes_of(network), plan.worker)
    workers = tuple(str(card.get("node")) for card in cards)
    summary = asker.summary()
    before = take_census(summary, network)
    rounds = Rounds(plan, asker, workers, began + plan.limit_seconds, tell)
    rounds.look_around(summary)
    rounds.warm_up()
    completed = rounds.run()
    jitter = rounds.jitter()
    tell("waiting for the workers' next cards")
    network = asker.fresh_network()
    after = take_census(asker.summary(), network)
    samples = samples_of_now(rounds.samples, after.epochs)
    estimates = asker.estimates() if workers else None
    own = OwnWork(asker.requests, asker.computed_tokens)
    report = BenchReport(
        url=plan.url,
        head=str((network.get("head") or {}).get("node")),
        rounds=completed,
        lengths=plan.lengths,
        seconds=time.monotonic() - began,
        local=summarize_local(samples),
        workers=(),
        jitter=jitter,
        notes=(*(() if workers else (f"no worker was measured: {check.detail}",)), *rounds.notes),
        bystanders=describe_bystanders(before, after, own, rounds.live),
    )
    report = _with_comparison(report, plan, asker, rounds)
    return _with_workers(report, plan, samples, [_Known(name, network, estimates) for name in workers])


def _with_comparison(report: BenchReport, plan: BenchPlan, asker: Asker, rounds: Rounds) -> BenchReport:
    """`report` with what mlx-lm's server does, where that is wanted. The head's requests have no directive then, and
    what workers compute for them is not told: others are known by their requests alone.
    """
    if plan.compared_model is None:
        return report
    before = take_census(asker.summary(), {})
    comparing = Comparing(asker.stream_server(), asker.texts, rounds.tell)
    compare_with_mlx_lm(plan, plan.compared_model, comparing, rounds.deadline)
    after = take_census(asker.summary(), {})
    others = describe_bystanders(before, after, OwnWork(comparing.requests, {}), ())
    return replace(
        report,
        comparisons=comparing.comparisons(),
        notes=(*report.notes, *comparing.notes),
        bystanders=(*report.bystanders, *others),
        seconds=time.monotonic() - rounds.deadline + plan.limit_seconds,
    )


class _Known:
    """What the head says about one worker."""

    def __init__(self, node: str, network: Mapping[str, Any], estimates: Mapping[str, Any] | None) -> None:
        self.node = node
        self.link = next((card.get("link") for card in nodes_of(network) if card.get("node") == node), None)
        self.estimates = estimates


def _with_workers(
    report: BenchReport, plan: BenchPlan, samples: Sequence[Sample], known: Sequence[_Known]
) -> BenchReport:
    results = []
    for one in known:
        result = with_prediction(conclude_worker(one.node, samples, report.local, one.link), one.estimates)
        hits = longest_hits(sample for sample in samples if sample.node == one.node)
        results.append(replace(result, link=raw_link(result.link, plan, [hit.payload_bytes for hit in hits])))
    judged = [
        target
        for result in results
        for target in judge_worker(result, report.local, _besides(result, report.jitter, plan, samples))
    ]
    judged += judge_comparisons(report.comparisons, DEFAULTS, CHUNKED)
    return replace(report, workers=tuple(results), targets=demand(judged, plan.expected))


def _besides(result: WorkerResult, jitter: Sequence[JitterLine], plan: BenchPlan, samples: Sequence[Sample]) -> Besides:
    longest = result.lines[-1] if result.lines else None
    hit_bytes = longest.hit_bytes if longest and is_loopback(plan.url) else None
    return Besides(
        prefill_seconds=prefill_seconds(result.node, longest.length, samples) if longest else None,
        copy_seconds=copy_seconds(int(hit_bytes)) if hit_bytes else None,
        step_seconds=next((line.gaps.median_seconds for line in jitter if line.beside is None), None),
    )


def nodes_of(network: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The cards in what ``/v1/network/nodes`` says."""
    nodes = network.get("nodes")
    return [card for card in nodes if isinstance(card, Mapping)] if isinstance(nodes, list) else []


__all__ = ["nodes_of", "run_bench"]
