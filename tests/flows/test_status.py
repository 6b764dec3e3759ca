"""``kakeya status`` beside a fleet at work: its numbers are the API's, and what goes wrong shows at once."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from flows.heads import wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.cli.main import app
from kakeya_ops.errors import ExitCode
from kakeya_ops.status.value import TOTALS
from terminal import Terminal


def inventory(fleet: LoopbackFleet) -> Path:
    """That of a worker: it leads to every node without a proxy in between."""
    return fleet.write_inventory("worker")


def kakeya(fleet: LoopbackFleet, *words: str) -> Result:
    return CliRunner().invoke(app, ["--inventory", str(inventory(fleet)), *words])


def status(fleet: LoopbackFleet) -> dict[str, Any]:
    """The document, with its nodes by name."""
    document: dict[str, Any] = json.loads(kakeya(fleet, "--json", "status").stdout)
    document["nodes"] = {node["node"]: node for node in document["nodes"]}
    return document


def test_after_a_remote_job_the_numbers_are_those_of_the_api(pair: LoopbackFleet) -> None:
    jobs = pair.counter("worker", "jobs_finished")
    pair.head.complete(fresh_prompt(400), "remote")
    wait_until(lambda: pair.counter("worker", "jobs_finished") == jobs + 1, "the job's end")
    summary, network = pair.head.get("/v1/network/summary"), pair.head.network()
    result = kakeya(pair, "--json", "status")
    assert result.exit_code == ExitCode.OK, result.output
    document = json.loads(result.stdout)
    totals = document["totals"]
    assert totals["counters"] == {name.value: summary["counters"][name.value] for name in TOTALS}
    assert totals["counters"]["tokens_computed_remote"] >= whole_blocks(400)
    assert totals["fallbacks_by_reason"] == summary["fallbacks_by_reason"]
    assert totals["by_worker"]["worker"] == summary["by_worker"]["worker"]
    nodes = {node["node"]: node for node in document["nodes"]}
    worker, card = nodes["worker"], pair.card("worker")
    assert worker["card"]["jobs_done"] == jobs + 1
    assert (worker["card"]["epoch"], worker["card"]["instance"]) == (card.epoch, card.instance)
    assert worker["card"]["pool_used_bytes"] == card.pool.used_bytes > 0
    assert worker["identity"]["equal"] is True
    assert worker["prefill_now_tokens_per_second"] == 0
    assert worker["model"] == nodes["head"]["model"] == "tiny"
    assert worker["memory"]["footprint_bytes"] > 0
    [reach], link = worker["reaches"], pair.head.node("worker")["link"]
    assert reach["port"] == link["port"]
    assert reach["bytes_per_second"] == pytest.approx(link["bytes_per_second"], rel=0.05)  # it ages
    assert reach["rtt_seconds"] > 0
    assert nodes["head"]["identity"]["digest"] == network["head"]["identity"]
    assert nodes["head"]["service"]["state"] == worker["service"]["state"] == "not asked"


def test_a_worker_that_the_head_does_not_reach_is_shown_with_the_way_that_works(pair: LoopbackFleet) -> None:
    pair.proxies["worker"].set("refuse")
    pair.proxies["worker"].sever()
    wait_until(lambda: not pair.head.node("worker")["reachable"], "the end of the link")
    result = kakeya(pair, "status")
    assert result.exit_code == ExitCode.NO
    said = " ".join(result.stdout.split())
    assert "head does not reach it, though it reaches the head" in said
    assert "one way only: it reaches head, not the other way" in said
    assert "link only worker to head" in said
    pair.heal("worker")
    pair.head.wait_for_peer("worker")
    assert status(pair)["serves"]


def test_a_worker_that_hangs_is_told_and_holds_up_nothing(pair: LoopbackFleet) -> None:
    pair.children["worker"].signal_group(signal.SIGSTOP)
    try:
        document = status(pair)
    finally:
        pair.children["worker"].signal_group(signal.SIGCONT)
    assert document["nodes"]["worker"]["state"] == "unreachable"
    assert document["nodes"]["head"]["serves"]
    wait_until(lambda: status(pair)["serves"], "the worker's return")


def test_watching_a_worker_go_and_come_back_at_any_width(pair: LoopbackFleet) -> None:
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory(pair)), "status", "--watch"]
    with Terminal(command, 80) as terminal:
        text = terminal.wait_for(lambda text: "2 of 2 hosts serve" in text)
        assert max(map(len, text.splitlines())) <= 80
        jobs = int(pair.head.counters()["remote_jobs"])
        pair.head.complete(fresh_prompt(1000), "remote")
        terminal.wait_for(lambda text: f"remote_jobs {jobs + 1}" in text and "▁" in text)
        pair.end("worker")
        text = terminal.wait_for(lambda text: "1 of 2 hosts serve" in text)
        assert "worker  unreachable: " in text
        terminal.resize(140, 40)
        terminal.wait_for(lambda text: "link" in text.splitlines()[1] and "1 of 2 hosts serve" in text)
        pair.restart("worker")
        text = terminal.wait_for(lambda text: "2 of 2 hosts serve" in text)
        assert "restarted, seen" in text
        assert f"remote_jobs {jobs + 1}" in text
        terminal.press(b"\x03")
        assert terminal.wait_for_end() == ExitCode.OK
        assert terminal.modes_now() == terminal.modes
        # What was shown last stays, as if it had been asked for once.
        assert "2 of 2 hosts serve" in terminal.text
