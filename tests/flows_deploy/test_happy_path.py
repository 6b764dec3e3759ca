"""From two bare Macs to a fleet that proves itself, and back, over real SSH."""

from __future__ import annotations

import json
import os

import pytest

from flows_deploy.deployed import Fleet
from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import CrossCheck
from kakeya_ops.verify.head_client import HeadClient


@pytest.fixture(scope="module")
def results(fleet: Fleet) -> dict[str, HostResult]:
    """What came of deploying to both."""
    return fleet.deploy()


def test_a_fleet_is_installed_proves_itself_and_has_nothing_to_do_then(
    fleet: Fleet, results: dict[str, HostResult]
) -> None:
    assert [result.verdict for result in results.values()] == ["done", "done"], results
    assert list(results) == ["allens", "head"]
    with fleet.hosts() as hosts:
        checks = CrossCheck(hosts).run(results)
    assert [check.verdict for check in checks] == ["ok"] * 4, checks
    assert not fleet.plan().pending


@pytest.mark.usefixtures("results")
def test_the_head_has_a_prefix_computed_by_the_worker_that_launchd_started(fleet: Fleet) -> None:
    body = json.dumps({"prompt": "far away " * 60, "max_tokens": 4, "temperature": 0, "logprobs": 1}).encode()
    with HeadClient(f"http://{LOOPBACK}:{fleet.api_port}") as client:
        completion = client.complete(body, {})
        receipt = client.receipt(completion.request_id)
    assert receipt["remote"]["node"] == "allens"
    assert receipt["remote"]["computed_tokens"] > 64


@pytest.mark.usefixtures("results")
def test_secrets_are_where_they_belong_and_nowhere_else(fleet: Fleet) -> None:
    places = fleet.places("allens")
    key = (fleet.folder / "operator/.kakeya/fleet.key").read_text().strip()
    assert places.key is not None
    assert os.stat(places.key).st_mode & 0o777 == 0o600
    mac = fleet.machines["allens"].mac
    holding = [path for path in mac.home.rglob("*") if path.is_file() and key in path.read_text(errors="replace")]
    assert [str(path) for path in holding] == [places.key]
    assert key not in json.dumps(mac.calls())
