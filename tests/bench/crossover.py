"""Compares the prompt length from which a worker helps, as the head predicts it, with what is measured.

    python tests/bench/crossover.py [--real] [--head-share N] [--worker-share N] [--link-megabytes N] [--rounds N]

A head and a worker on loopback, each held to a share of its time by stopping and continuing it in turn, and a link that
carries no more than so much. Prints predicted ÷ measured, which is to be within 0.85 and 1.15; 0 whatever came out.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from models import make_real, make_tiny

from faults.proxy import Fault
from flows.loopback import Wanted, running
from kakeya_ops.bench.plan import BenchPlan, parse_lengths
from kakeya_ops.bench.report import WorkerResult
from kakeya_ops.bench.run import run_bench
from kakeya_ops.demo.fleet import Child
from kakeya_ops.views.bench import crossover_words

_PERIOD_SECONDS = 0.04


@contextlib.contextmanager
def throttled(child: Child, share: float) -> Iterator[None]:
    """Let the processes of `child` run for `share` of each period only."""
    over = threading.Event()

    def throttle() -> None:
        while not over.wait(_PERIOD_SECONDS * share):
            child.signal_group(signal.SIGSTOP)
            over.wait(_PERIOD_SECONDS * (1 - share))
            child.signal_group(signal.SIGCONT)

    thread = threading.Thread(target=throttle, name="throttle")
    if share < 1:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if share < 1:
            thread.join()
        child.signal_group(signal.SIGCONT)


def measure(folder: Path, options: argparse.Namespace) -> WorkerResult:
    """The worker, measured and predicted."""
    model = make_real(folder) if options.real else make_tiny(folder)
    (folder / "fleet").mkdir()
    wanted = Wanted(cache={"pool_gb": 0.5}, prefill={"policy": "measured"})
    with running(folder / "fleet", model, wanted) as fleet, contextlib.ExitStack() as throttles:
        fleet.proxies["worker"].set(down=Fault(bytes_per_second=options.link_megabytes * 1e6))
        fleet.proxies["worker"].sever()
        fleet.head.wait_for_peer("worker")
        throttles.enter_context(throttled(fleet.children["head"], options.head_share))
        throttles.enter_context(throttled(fleet.children["worker"], options.worker_share))
        plan = BenchPlan(fleet.head.url, (fleet.key,), parse_lengths(options.lengths), options.rounds)
        report = run_bench(plan, lambda text: print(text, file=sys.stderr, flush=True))
    for line in (*report.notes, *report.bystanders):
        print(line)
    [worker] = report.workers
    return worker


def main() -> int:
    """Measure once; 0 whatever came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--real", action="store_true", help="the real small model in place of the tiny one")
    parser.add_argument("--head-share", type=float, default=0.4)
    parser.add_argument("--worker-share", type=float, default=0.9)
    parser.add_argument("--link-megabytes", type=float, default=20.0)
    parser.add_argument("--lengths", default="128,256,512,1024,2048")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kakeya-bench-") as folder:
        worker = measure(Path(folder), options)
    predicted = "never" if worker.predicted_tokens is None else f"{worker.predicted_tokens} tokens"
    print(f"measured: {crossover_words(worker.crossover)}; predicted: {predicted if worker.predicts else 'not told'}")
    if worker.prediction_ratio is not None:
        verdict = "met" if abs(worker.prediction_ratio - 1) <= 0.15 else "MISSED"
        print(f"predicted ÷ measured: {worker.prediction_ratio:.3f}, 0.85 to 1.15 wanted: {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
