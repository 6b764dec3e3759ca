"""An hour of mixed load with faults against a real loopback fleet: nothing may grow, fail, or be wrong.

    python tests/bench/soak.py [--minutes N] [--clients N] [--json FILE]

A head and a worker with the tiny model, a proxy between them. Clients send known and new prompts, and some go away
before they are answered; streams are cut and corrupted, connections severed, the worker paused and killed. At the end,
and while nobody asks anything, the processes must rest: below 5 % of a core, and no disk writes. Exits with 1 and says
what was wrong, otherwise with 0.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.soaking import Soak, SoakPlan, SoakReport
from flows.loopback import Wanted, running
from kakeya_ops.demo.tiny_model import make_tiny_llama

_POOL_GB = 32 / 1024
_WARM_UP_SHARE = 0.15


def main() -> int:
    """Run it; 1 if anything was not as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write every reading to this file")
    options = parser.parse_args()
    seconds = options.minutes * 60
    plan = SoakPlan(
        seconds=seconds * (1 - _WARM_UP_SHARE),
        warm_up_seconds=seconds * _WARM_UP_SHARE,
        clients=options.clients,
        fault_seconds=15.0,
        rest_seconds=60.0 if seconds > 600 else 10.0,
    )
    with tempfile.TemporaryDirectory(prefix="kakeya-soak-") as folder:
        model = make_tiny_llama(Path(folder) / "tiny")
        (Path(folder) / "fleet").mkdir()
        with running(Path(folder) / "fleet", model, Wanted(cache={"pool_gb": _POOL_GB})) as fleet:
            fleet.head.wait_for_peer("worker")
            report = Soak(fleet, plan).run(lambda text: print(text, file=sys.stderr, flush=True))
    print(render(report))
    if options.json:
        options.json.write_text(json.dumps(_to_json(report)))
    complaints = report.complaints()
    for complaint in complaints:
        print(f"NOT FINE: {complaint}")
    return 1 if complaints else 0


def render(report: SoakReport) -> str:
    """The report for a person."""
    faults = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in report.faults.items())
    lines = [f"{report.answered} answered, {report.abandoned} left, {len(report.failed)} failed; faults: {faults}"]
    for (name, pid), series in report.series.items():
        first, last = series[0], series[-1]
        lines.append(
            f"{name} (pid {pid}), {last.at - first.at:.0f} s: {first.resident_bytes / 2**20:.0f} to "
            f"{last.resident_bytes / 2**20:.0f} MiB resident, {first.descriptors} to {last.descriptors} descriptors, "
            f"{first.threads} to {last.threads} threads"
        )
    for name, found in report.rests.items():
        lines.append(f"{name} at rest: {found.cpu_share:.2%} of a core, {found.written_bytes} bytes written")
    return "\n".join(lines)


def _to_json(report: SoakReport) -> dict[str, object]:
    return {
        "answered": report.answered,
        "abandoned": report.abandoned,
        "faults": dict(report.faults),
        "complaints": report.complaints(),
        "rests": {name: asdict(found) for name, found in report.rests.items()},
        "series": [
            {"node": name, "pid": pid, "readings": [asdict(reading) for reading in series]}
            for (name, pid), series in report.series.items()
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
