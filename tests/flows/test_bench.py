"""`kakeya bench` against real processes."""

from __future__ import annotations

import json
import subprocess
import sys

from flows.loopback import LoopbackFleet


def test_it_measures_head_worker_link_and_jitter(pair: LoopbackFleet) -> None:
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(pair.write_inventory("head")), "--json"]
    options = ["bench", "--lengths", "130,400", "--rounds", "1"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["notes"], document["bystanders"]) == ([], [])
    assert [line["length"] for line in document["local"]] == [130, 400]
    assert all(line["tokens_per_second"]["median"] > 0 for line in document["local"])
    [worker] = document["workers"]
    for line in worker["lines"]:
        assert line["tokens_per_second"]["median"] > 0
        assert line["hit_first_token"]["median"] > 0
    assert worker["crossover"]["side"] in ("at", "at most", "never")
    assert worker["link"]["raw"] > worker["link"]["measured"]["median"] > 0
    assert [line["beside"] for line in document["jitter"]] == [
        None,
        "400 tokens computed by the head itself",
        "400 tokens computed by worker",
    ]
    assert {target["kind"]["name"] for target in document["targets"]} == {
        "hit",
        "hit_floor",
        "transfer",
        "overlap",
        "prediction",
    }
