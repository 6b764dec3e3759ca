"""What is installed and how it runs, from what was observed."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.states import FakeModel, bare, planner, settled
from doctor.patients import HEALTHY, pair, patient
from kakeya_ops.certificates.authority import write_authority
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.doctor import Expected
from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.installed import check_installed
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.observe.state import ApiKeysFile, Health, HostState, Job, Unknown


class RefusedModel(FakeModel):
    def steps(self, *_: Any) -> Any:
        raise DeployError("allens", "no room for the model: 15 GiB to copy, 3 GiB free", hint="make room")


def look(code: str, one: Patient) -> Finding:
    [finding] = [finding for finding in check_installed(one) if finding.code == code]
    return finding


def running(**changes: Any) -> Patient:
    return patient(state=settled(planner(), "allens", **changes))


def halted(state: HostState) -> tuple[Job, ...]:
    assert state.job is not None
    return (Job(state.job.domain, replace(state.job.service, state="spawn scheduled", pid=None)),)


@pytest.mark.parametrize(
    ("one", "verdict", "words"),
    [
        (running(), "ok", "is healthy in its own words"),
        (running(health=None), "failed", "nothing answers"),
        (running(health=Health(False, "the compute thread has stopped")), "failed", "the compute thread has stopped"),
        (running(health=Unknown("the host has no curl")), "unknown", "no curl"),
        (running(disabled=True), "failed", "disabled in launchd"),
        (running(jobs=halted(settled(planner(), "allens"))), "failed", "no process: spawn scheduled"),
        (running(jobs=()), "failed", "no process: not loaded"),
        (patient(state=bare("allens")), "warning", "not installed"),
    ],
)
def test_the_service_is_judged_by_launchd_and_by_its_own_words(one: Patient, verdict: str, words: str) -> None:
    finding = look("service", one)
    assert (finding.verdict, words in finding.found) == (verdict, True), finding


@pytest.mark.parametrize(
    ("model", "verdict", "words"),
    [
        (FakeModel(), "ok", "has the hashes of this machine's"),
        (FakeModel(lacking=True), "warning", "deploy would sync the model"),
        (RefusedModel(), "failed", "no room for the model"),
    ],
)
def test_the_model_is_compared_with_this_machine_s(model: FakeModel, verdict: str, words: str) -> None:
    finding = look("model", patient(expected=Expected(model, None)))
    assert (finding.verdict, words in finding.found) == (verdict, True), finding


def test_a_cache_peer_has_no_model_to_be_looked_at() -> None:
    cache = pair().host("allens").model_copy(update={"role": "cache"})
    assert not [one for one in check_installed(patient(host=cache)) if one.code == "model"]


@pytest.mark.parametrize(
    ("prevents", "runs", "awake", "verdict"),
    [
        (True, True, True, "ok"),
        (True, True, False, "warning"),
        (True, False, False, "ok"),
        (False, True, True, "warning"),
    ],
)
def test_a_mac_that_falls_asleep_is_well_only_where_the_service_keeps_it_awake(
    prevents: bool, runs: bool, awake: bool, verdict: str
) -> None:
    host = pair().host("allens").model_copy(update={"prevent_sleep": prevents})
    state = settled(planner(), "allens") if runs else bare("allens")
    facts = replace(HEALTHY, sleep_minutes=10, kept_awake=awake)
    assert look("sleep", patient(host=host, state=state, facts=facts)).verdict == verdict


def test_a_fleet_with_tls_needs_an_authority_and_certificates_of_it(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    authority = write_authority(tmp_path / "authority.pem", "pair", now)
    without = look("certificate", patient())
    assert (without.verdict, without.fix) == ("unknown", "kakeya key new")
    expected = Expected(FakeModel(), None, authority)
    assert look("certificate", patient(expected=expected, state=bare("allens"))).verdict == "warning"
    other = look("certificate", patient(expected=expected))
    assert (other.verdict, other.found) == ("failed", "the fleet's authority is missing")


def test_the_file_of_api_keys_is_looked_at_where_the_head_asks_for_keys() -> None:
    host = pair().host("head")
    assert host.api is not None
    host = host.model_copy(update={"api": host.api.model_copy(update={"keys_file": "~/keys"})})
    for keys, verdict in (
        (ApiKeysFile(True), "ok"),
        (ApiKeysFile(False), "failed"),
        (None, "failed"),
        (Unknown("the probe did not end"), "unknown"),
    ):
        state = settled(planner(), "head", api_keys=keys)
        assert look("api-keys", patient("head", host=host, state=state)).verdict == verdict
