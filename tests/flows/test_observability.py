"""What can be seen of real processes: the same request in API, events, metrics, logs and after a restart."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from flows.heads import wait_until
from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt, whole_blocks
from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.serving.metrics import METRICS

LENGTH = 700


@pytest.fixture
def asked(pair: LoopbackFleet) -> tuple[str, dict[str, Any]]:
    """A prompt that the worker has just computed, and its receipt."""
    prompt = fresh_prompt(LENGTH)
    _, receipt = pair.head.complete(prompt, "remote")
    return prompt, receipt


def log(fleet: LoopbackFleet, name: str) -> list[dict[str, Any]]:
    """The events in the log of a node; the line that says that it is ready is for people."""
    lines = (fleet.directory / f"{name}.log").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def explain(fleet: LoopbackFleet, request_id: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(fleet.directory / "head.yaml"), "--json"]
    done = subprocess.run([*command, "explain", request_id], capture_output=True, text=True, timeout=100)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def scrape(port: int) -> dict[str, float]:
    """The sum of each metric at a peer port."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {family.name: sum(sample.value for sample in family.samples) for family in families}


def test_a_remote_job_is_a_timeline_of_both_nodes(pair: LoopbackFleet, asked: tuple[str, dict[str, Any]]) -> None:
    _, receipt = asked
    requests = pair.head.get("/v1/network/prefill")["requests"]
    shown = next(one for one in requests if one["request_id"] == receipt["request_id"])
    steps = {span["step"]: span for span in shown["timeline"]}
    assert {"queue", "lookup", "transfer", "compute", "import", "suffix", "first token"} == set(steps)
    assert steps["compute"]["node"] == steps["transfer"]["node"] == "worker"
    assert steps["compute"]["detail"] == f"{whole_blocks(LENGTH)} tokens"
    ends = [span["began_seconds"] + span["seconds"] for span in shown["timeline"]]
    assert max(ends) == pytest.approx(receipt["times"]["first_token"], abs=1e-3)


def test_the_metrics_of_both_are_the_whole_list_and_their_counters(
    pair: LoopbackFleet, asked: tuple[str, dict[str, Any]]
) -> None:
    worker, head = scrape(pair.ports["worker"]), scrape(pair.ports["head"])
    assert set(worker) == {metric.name for metric in METRICS if "worker" in metric.roles}
    assert set(head) == {metric.name for metric in METRICS if "head" in metric.roles}
    counters = pair.head.counters()
    assert head["kakeya_remote_jobs"] == counters["remote_jobs"] >= 1
    assert head["kakeya_tokens_computed_remote"] == counters["tokens_computed_remote"] >= whole_blocks(LENGTH)
    assert worker["kakeya_tokens_computed"] == pair.counter("worker", "tokens_computed") >= whole_blocks(LENGTH)


def test_logs_name_request_and_job_and_never_the_prompt(pair: LoopbackFleet, asked: tuple[str, dict[str, Any]]) -> None:
    prompt, receipt = asked

    def ended(name: str, event: str) -> list[dict[str, Any]]:
        found = [one for one in log(pair, name) if one["event"] == event]
        return [one for one in found if one["request_id"] == receipt["request_id"]]

    wait_until(lambda: bool(ended("head", "request ended") and ended("worker", "job ended")), "the lines of the log")
    [request], [job] = ended("head", "request ended"), ended("worker", "job ended")
    assert request["job"] == job["job"] == receipt["remote"]["job"]
    assert (request["decision"], request["worker"], request["finish"]) == ("remote_compute", "worker", "length")
    assert job["computed_tokens"] == whole_blocks(LENGTH)
    texts = [path.read_text() for path in pair.directory.iterdir() if path.suffix in (".log", ".jsonl")]
    assert len(texts) >= 3
    for text in texts:
        assert prompt[:24] not in text
        assert pair.key.reveal().hex() not in text


def test_progress_of_a_remote_prefill_reaches_the_client_and_the_list(pair: LoopbackFleet) -> None:
    seen: set[str] = set()
    prompt = fresh_prompt(4000)

    def looked() -> bool:
        seen.update(f"{one['stage']} {one['node']}" for one in pair.head.get("/v1/network/prefill")["live"])
        return "remote prefill worker" in seen

    with pair.head.started(prompt, "remote", max_tokens=1) as connection:
        wait_until(looked, "the progress of a remote prefill")
        streamed = b""
        while b"[DONE]" not in streamed:
            streamed += (received := connection.recv(65536))
            assert received, streamed[-500:]


def test_a_request_is_explained_also_after_a_restart(pair: LoopbackFleet, asked: tuple[str, dict[str, Any]]) -> None:
    _, receipt = asked
    code, before = explain(pair, receipt["request_id"])
    assert (code, before["trustworthy"]) == (0, True)
    assert [seal["verdict"] for seal in before["signatures"]] == ["valid", "valid"]
    assert before["receipt"] == receipt
    pair.restart("head")
    pair.head.wait_for_peer("worker")
    assert explain(pair, receipt["request_id"]) == (0, before)
