"""From two bare Macs to a fleet that proves itself, and back, over real SSH."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from deploy.model_copies import visible
from flows.heads import Head
from flows_deploy.deployed import QUICK, Fleet, SharedModel
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.cross_check import Check, CrossCheck
from kakeya_ops.deploy.material import read_key
from kakeya_ops.deploy.model_sync import read_model
from kakeya_ops.deploy.plan import HostPlan
from kakeya_ops.doctor import Examination, Expected
from kakeya_ops.errors import RemoteError
from ports import choose_ports

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class First:
    """What came of deploying to both for the first time, and what there was to be said afterwards."""

    results: dict[str, HostResult]
    checks: list[Check]
    pending: tuple[HostPlan, ...]


@pytest.fixture(scope="module")
def first(fleet: Fleet) -> First:
    results = fleet.deploy()
    with fleet.hosts() as hosts:
        return First(results, CrossCheck(hosts).run(results), fleet.plan().pending)


def test_a_fleet_is_installed_proves_itself_and_has_nothing_to_do_then(first: First) -> None:
    assert [result.verdict for result in first.results.values()] == ["done", "done"], first.results
    assert list(first.results) == ["allens", "head"]
    assert [check.verdict for check in first.checks] == ["ok"] * 6, first.checks
    assert not first.pending


@pytest.mark.usefixtures("first")
def test_the_head_has_a_prefix_computed_by_the_worker_that_launchd_started(fleet: Fleet) -> None:
    key = read_key(fleet.inventory)
    assert key is not None
    head = Head(fleet.api_port, key)
    try:
        head.wait_for_peer("allens")
        # Without the directive the head asks peers for a quarter of a second, which on a crowded machine may pass.
        answer, receipt = head.complete("far away " * 60, "remote")
        local, _ = head.complete("far away " * 60, "local")
    finally:
        head.close()
    assert answer.logprobs == local.logprobs
    assert receipt["fallback"] is None
    assert receipt["remote"]["node"] == "allens"
    assert receipt["remote"]["computed_tokens"] > 64


@pytest.mark.slow
@pytest.mark.usefixtures("first")
def test_a_connection_that_is_lost_for_good_in_mid_upload_leaves_the_worker_as_it_was(fleet: Fleet) -> None:
    """And the next deploy sends only the rest, to where the inventory now wants the model."""
    model, wanted = dict(fleet.document["model"]), fleet.folder / "operator/models/copy"
    shutil.copytree(fleet.model, wanted)
    (wanted / "notes.txt").write_bytes(os.urandom(8 * 2**20))
    fleet.change("model", path="~/models/copy", sync=True)
    fleet.model_source = read_model(fleet.inventory)
    machine, places = fleet.machines["allens"], fleet.places("allens")
    pid, plist = machine.mac.wait_until_running(places.label).pid, Path(places.plist).read_bytes()

    # What is under way when the line breaks is lost: no more than a channel's window, which is 2 MiB.
    fleet.at_transfer = lambda done_bytes: machine.server.stop() if done_bytes > 5 * 2**20 else None
    result = fleet.deploy("allens")["allens"]
    machine.server.start()
    assert isinstance(result.error, RemoteError), result
    assert machine.mac.wait_until_running(places.label).pid == pid
    assert Path(places.plist).read_bytes() == plist
    copied = machine.mac.home / "models/copy"
    assert visible(copied) == {}

    shutil.rmtree(places.lock)
    sent: list[int] = []
    fleet.at_transfer = sent.append
    assert fleet.deploy("allens")["allens"].verdict == "done", fleet.notes[-20:]
    assert sent[0] > 2**21
    assert (copied / "notes.txt").read_bytes() == (wanted / "notes.txt").read_bytes()
    fleet.document["model"], fleet.model_source = model, SharedModel()
    fleet.change("model")


@pytest.mark.slow
@pytest.mark.usefixtures("first")
def test_a_worker_that_cannot_reach_the_head_itself_is_told(fleet: Fleet) -> None:
    """The head has moved, and only it was deployed since: it reaches the worker, and brings it all cards."""
    old = fleet.document["hosts"]["head"]["endpoints"]
    fleet.change_host("head", endpoints=[old[0] | {"port": choose_ports(1)[0]}])
    moved = fleet.deploy("head", timing=replace(QUICK, healthy=120.0))["head"]
    assert moved.verdict == "done", (moved, fleet.notes[-20:])
    with fleet.hosts() as hosts:
        checks = {check.what: check for check in CrossCheck(hosts, seconds=8.0).run(["head"])}
    failed = checks.pop("the process of allens reaches head")
    assert failed.verdict == "failed"
    assert "was allens deployed since head moved there" in failed.found
    assert {check.verdict for check in checks.values()} == {"ok"}, checks
    assert fleet.deploy("allens")["allens"].verdict == "done", fleet.notes[-20:]
    with fleet.hosts() as hosts:
        assert {check.verdict for check in CrossCheck(hosts).run(["head"])} == {"ok"}


@pytest.mark.usefixtures("first")
def test_the_doctor_finds_a_fleet_that_was_just_deployed_well(fleet: Fleet) -> None:
    with fleet.hosts() as hosts:
        expected = Expected(fleet.model_source, fleet.material().key_digest)
        report = Examination(hosts, expected, None).run(["head", "allens"])
    by_code = {(one.host, one.code): one for one in report.findings}
    codes = ("ssh", "key", "service", "double-load", "port", "process", "node-id", "version", "identity")
    unwell = [one for (host, code), one in by_code.items() if code in codes and one.verdict != "ok"]
    assert not unwell
    assert by_code["head", "process"].found == "the service itself reaches allens by loopback"
    assert by_code["allens", "process"].found == "the service itself reaches head by loopback"
    assert by_code["allens", "identity"].found.startswith("that of head, ")


@pytest.mark.usefixtures("first")
def test_secrets_are_where_they_belong_and_nowhere_else(fleet: Fleet) -> None:
    places = fleet.places("allens")
    key = (fleet.folder / "operator/.kakeya/fleet.key").read_text().strip()
    assert places.key is not None
    assert os.stat(places.key).st_mode & 0o777 == 0o600
    mac = fleet.machines["allens"].mac
    holding = [path for path in mac.home.rglob("*") if path.is_file() and key in path.read_text(errors="replace")]
    assert [str(path) for path in holding] == [places.key]
    assert key not in json.dumps(mac.calls())
