from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from bench.taken import sample_of
from kakeya_ops.bench.compare import Comparison
from kakeya_ops.bench.conclusion import conclude_worker
from kakeya_ops.bench.crossover import Crossover
from kakeya_ops.bench.gaps import Gaps
from kakeya_ops.bench.report import BenchReport, JitterLine, WorkerResult, summarize_local
from kakeya_ops.bench.spread import Spread
from kakeya_ops.bench.targets import KINDS, Target
from kakeya_ops.views.bench import bench_view, crossover_words

SAMPLES = [
    sample_of("local", 1000, 1.0),
    sample_of("local", 2000, 4.0),
    sample_of("hot_hit", 1000, 0.01),
    sample_of("remote", 1000, 2.0),
    sample_of("remote", 2000, 2.0),
    sample_of("remote_hit", 2000, 0.3),
]
LINK = {"network": "cable", "address": "10.0.0.9", "port": 5, "rtt_seconds": 0.0005, "bytes_per_second": 2.0**20}


def worker() -> WorkerResult:
    found = conclude_worker("worker", SAMPLES, summarize_local(SAMPLES), LINK)
    return replace(
        found,
        predicts=True,
        predicted_tokens=1408,
        prediction_ratio=1.056,
        link=replace(found.link, raw=2e7, raw_source="as told"),
    )


def report() -> BenchReport:
    return BenchReport(
        url="http://head",
        head="mini\x1b",
        rounds=1,
        lengths=(1000, 2000),
        seconds=12.5,
        local=summarize_local(SAMPLES),
        workers=(worker(),),
        jitter=(JitterLine(None, Gaps(64, 0.05, 0.06, 0.07)), JitterLine("2000 tokens", Gaps(9, 0.1, 0.2, 0.3))),
        comparisons=(
            Comparison("first token", "s", Spread(0.5, 0.5, 0.5, 1), Spread(2.0, 2.0, 2.0, 1), 0.25),
            Comparison("decode", "tokens/s", Spread(30.0, 30.0, 30.0, 1), Spread(20.0, 20.0, 20.0, 1), 1.5),
        ),
        targets=(
            Target(KINDS["hit"], "worker", 0.075, demanded=True),
            Target(KINDS["transfer"], "worker", 0.9),
            Target(KINDS["overlap"], "worker", None),
        ),
        notes=("something was not measured",),
        bystanders=("the head took 3 requests of others meanwhile",),
    )


def printed(found: BenchReport) -> list[str]:
    console = Console(file=io.StringIO(), width=160, no_color=True)
    for part in bench_view(found):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines() if line.strip()]


def test_everything_that_was_found_is_shown() -> None:
    lines = printed(report())
    text = "\n".join(lines)
    assert lines[0] == "bench of mini\\x1b at http://head: 1 round in 12.50 s; median (lowest to highest)"
    assert (
        "1001 tokens mini\\x1b (head) 2000 (2000 to 2000) 1.00 s (1.00 s to 1.00 s) 10.0 ms (10.0 ms to 10.0 ms)"
        in lines
    )
    assert "worker 1334 tokens 1408 tokens 1.06" in lines
    assert "worker cable 10.0.0.9:5 500 µs 1.0 MiB/s 9.5 MiB/s 19.1 MiB/s 0.50" in lines
    assert "alone 64 50.0 ms 60.0 ms 70.0 ms" in lines
    assert "beside 2000 tokens 9 100.0 ms 200.0 ms 300.0 ms" in lines
    assert "first token 500.0 ms 2.00 s 0.250" in lines
    assert "decode 30.0 tokens/s 20.0 tokens/s 1.500" in lines
    assert "MISSED hit: first token" in text
    assert "≤ 0.02 (demanded) 0.075" in text
    assert "met transfer" in text
    assert "unknown overlap" in text
    assert "note: something was not measured" in lines
    assert "not alone: the head took 3 requests of others meanwhile" in lines
    assert "no measure of the fleet alone" in lines[-1]


def test_a_head_alone_has_no_workers_tables() -> None:
    text = "\n".join(printed(replace(report(), workers=(), jitter=(), targets=(), notes=(), bystanders=())))
    assert "helps from" not in text
    assert "not alone" not in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"predicts": False}, "not told"),
        ({"predicted_tokens": None, "prediction_ratio": None}, "never"),
        ({"link": replace(worker().link, raw=None, measured=None, rtt_seconds=None, address="")}, "unknown"),
    ],
)
def test_what_is_not_known_is_said(change: dict[str, object], words: str) -> None:
    assert words in "\n".join(printed(replace(report(), workers=(replace(worker(), **change),))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (Crossover("at", 700.4), "700 tokens"),
        (Crossover("at most", 256), "at most 256 tokens"),
        (Crossover("never", 2048), "never, up to 2048 tokens"),
        (None, "not measured"),
    ],
)
def test_a_crossover_in_words(found: Crossover | None, words: str) -> None:
    assert crossover_words(found) == words
