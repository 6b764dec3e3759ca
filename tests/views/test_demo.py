from __future__ import annotations

import io
import json
import subprocess
from dataclasses import replace
from pathlib import Path

from kakeya_ops.demo.fleet import FleetPlan
from kakeya_ops.demo.run import DemoOutcome
from kakeya_ops.verify.report import Check, VerifyReport
from kakeya_ops.views.demo import DemoScreen
from kakeya_ops.views.printer import Printer
from verify.samples import head_card, receipt, worker_card

OUTCOME = DemoOutcome(
    plan=FleetPlan(Path("/d"), Path("/d/tiny-llama"), 1001, 1002, 1003),
    pids={"worker": 11, "head": 12},
    network={"head": head_card(), "nodes": [worker_card()]},
    question="Why?",
    answer="Because\x1b[2J.",
    receipt=receipt("cold"),
    report=VerifyReport("http://127.0.0.1:1001", "head", "worker", (Check("c", "ok", "1"),)),
    tiny=True,
    kept=True,
)


def shown(*, json: bool, outcome: DemoOutcome = OUTCOME) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    screen = DemoScreen(Printer(json=json, stdout=out, stderr=err), "venv/bin/kakeya")
    with screen.step("working"), screen.progress("waiting") as tell:
        tell("still")
    screen.note("a note")
    screen.outcome(outcome)
    return out.getvalue(), err.getvalue()


def test_everything_is_shown_in_order() -> None:
    out, err = shown(json=False)
    parts = [
        "worker",
        "random words from random weights",
        "Because\\x1b[2J.",
        "gain: none",
        "PASSED: worker",
        "http://127.0.0.1:1001/\n",
        "curl -s",
    ]
    places = [out.index(part) for part in parts]
    assert places == sorted(places)
    for arguments in ("explain ID", "status --watch", "verify remote-prefill"):
        assert f"  venv/bin/kakeya --inventory /d/inventory.yaml {arguments}\n" in out
    assert "working" in err
    assert "a note" in err


def test_no_address_is_told_of_a_fleet_that_is_gone() -> None:
    out, _ = shown(json=False, outcome=replace(OUTCOME, kept=False))
    assert "venv/bin/kakeya demo --keep" in out
    assert "curl" not in out
    assert "/d/inventory.yaml" not in out


def test_json_is_one_document() -> None:
    document = json.loads(shown(json=True)[0])
    assert document["pids"] == {"worker": 11, "head": 12}
    assert document["report"]["passed"] is True
    assert document["curl"].startswith("curl -s http://127.0.0.1:1001/v1/chat/completions")
    assert document["dashboard"] == "http://127.0.0.1:1001/"


def test_the_line_to_try_sends_a_new_long_prompt_as_json() -> None:
    command = OUTCOME.curl.replace("curl", "printf '%s\\n'", 1)
    lines = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()
    [message] = json.loads(lines[-1])["messages"]
    assert "198 199 200" in message["content"]
    assert "$" not in message["content"]
    assert len(message["content"]) > 600
