from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import PeerRefused, PeerUnreachable
from kakeya_ops.verify import probe
from kakeya_ops.verify.probe import ProbeOptions, probe_text, run_probe
from kakeya_ops.verify.report import VerifyReport
from verify.samples import KEY, worker_card
from verify.scripted_head import ScriptedHead, serve

NONCES = st.binary(min_size=16, max_size=16).map(bytes.hex)


@pytest.fixture
def head() -> ScriptedHead:
    return ScriptedHead()


@pytest.fixture
def url(head: ScriptedHead) -> Iterator[str]:
    with serve(head, time.time) as url:
        yield url


def probed(url: str, **options: Any) -> VerifyReport:
    return run_probe(ProbeOptions(url, (KEY,), **options), lambda _: None)


def failing(report: VerifyReport) -> dict[str, str]:
    return {check.name: check.verdict for check in report.checks if check.verdict != "ok"}


def test_an_honest_fleet_passes(head: ScriptedHead, url: str) -> None:
    report = probed(url)
    assert failing(report) == {}
    assert (report.passed, report.head, report.worker) == (True, "head", "worker")
    assert set(report.receipts) == {"cold", "repeated", "local"}


def test_the_same_fresh_prompt_is_sent_three_times(head: ScriptedHead, url: str) -> None:
    probed(url)
    probed(url)
    first, again, local, other = head.prompts[:4]
    assert first == again == local
    assert other["prompt"] != first["prompt"]
    assert (first["model"], first["temperature"], first["logprobs"]) == ("m", 0, 1)


def words(head: ScriptedHead, index: int = 0) -> int:
    return len(head.prompts[index]["prompt"].split())


def test_a_prompt_is_longer_than_a_block(head: ScriptedHead, url: str) -> None:
    probed(url, min_tokens=1)
    assert words(head) > 64 // 2


def test_a_prompt_that_proved_too_short_is_tried_at_length(head: ScriptedHead, url: str) -> None:
    report = probed(url, min_tokens=200)
    assert failing(report) == {"receipt of this request": "failed"}, "the scripted answer says 150 tokens"
    assert 100 < words(head, 0) < 110
    assert 200 < words(head, 1) < 210
    assert words(head, 1) == words(head, 2) == words(head, 3)


def test_the_workers_next_card_is_waited_for(head: ScriptedHead, url: str) -> None:
    head.late = 3
    assert probed(url).passed
    assert head.looks == 6, "two before, three too early, one that counts"


def test_a_worker_that_dies_while_its_card_is_awaited_is_told(head: ScriptedHead, url: str) -> None:
    (card,) = head.nodes
    head.before_look = lambda looks: card.update(reachable=looks < 3)
    head.frozen = True
    assert failing(probed(url)) == {"live worker": "failed"}
    assert head.looks == 3


def test_counting_begins_with_a_new_card(head: ScriptedHead, url: str) -> None:
    report = probed(url)
    (check,) = (check for check in report.checks if check.name == "worker's own counters")
    assert "grew by 384" in check.detail, "three scripted requests of 128 tokens"


def test_a_card_that_never_comes_is_not_waited_for_for_ever(
    head: ScriptedHead, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_CARD_SECONDS", 0.0)
    head.late = 1_000_000
    assert failing(probed(url)) == {"worker's own counters": "unknown"}


def test_a_worker_that_counts_nothing_fails(head: ScriptedHead, url: str) -> None:
    head.counting = False
    assert failing(probed(url)) == {"worker's own counters": "failed"}


def test_a_local_fallback_fails(head: ScriptedHead, url: str) -> None:
    def fall_back(label: str, document: dict[str, Any]) -> None:
        if label == "cold":
            document["remote"] = None
            document["fallback"] = {"worker": "worker", "reason": "timeout", "message": "worker: silent for 5 s"}

    head.spoil = fall_back
    head.late = 1_000_000
    report = probed(url)
    assert not report.passed
    assert failing(report)["remote compute, no fallback"] == "failed"
    assert head.looks == 3, "waited for a job that never was"


def test_a_receipt_from_yesterday_fails(head: ScriptedHead, url: str) -> None:
    head.spoil = lambda label, document: document.update(client_nonce="9" * 32)
    assert failing(probed(url)) == dict.fromkeys(
        ("receipt of this request", "same prompt again: remote hit", "local control"), "failed"
    )


def test_without_a_live_worker_nothing_is_sent(head: ScriptedHead, url: str) -> None:
    head.nodes = [worker_card() | {"role": "cache", "node": "shelf"}]
    report = probed(url)
    assert failing(report) == {"live worker": "failed"}
    assert head.prompts == []
    assert report.worker is None


def test_the_worker_named_by_the_receipt_is_judged_by_its_own_card(head: ScriptedHead, url: str) -> None:
    head.nodes.insert(0, worker_card() | {"node": "idle", "epoch": 1})
    assert probed(url).worker == "worker"
    assert failing(probed(url, worker="idle"))["remote compute, no fallback"] == "failed"


def test_a_refused_request_is_a_no(head: ScriptedHead, url: str) -> None:
    head.replies["/v1/completions"] = (503, b'{"error": {"message": "worker: gone", "code": "remote_required"}}')
    report = probed(url)
    assert failing(report) == {"requests answered": "failed"}
    assert "worker: gone" in report.checks[-1].detail


def test_a_head_that_does_not_name_its_model_is_unknown(head: ScriptedHead, url: str) -> None:
    del head.head["model"]
    assert failing(probed(url)) == {"head's own card": "unknown"}


def test_a_closed_network_api_is_told(head: ScriptedHead, url: str) -> None:
    head.replies["/v1/network/nodes"] = (401, b'{"error": {"message": "no API key", "code": "invalid_api_key"}}')
    with pytest.raises(PeerRefused, match="no API key"):
        probed(url)


def test_no_head_is_no_verdict() -> None:
    with pytest.raises(PeerUnreachable):
        probed("http://127.0.0.1:1")


@given(NONCES, st.integers(1, 300))
def test_a_prompt_begins_with_its_nonce_and_is_long_enough(nonce: str, words: int) -> None:
    text = probe_text(nonce, words)
    assert text.replace(" ", "").startswith(nonce)
    assert len(text.split()) >= words
    assert text == probe_text(nonce, words)


@given(NONCES, NONCES)
def test_prompts_of_two_nonces_share_no_block(nonce: str, other: str) -> None:
    same = probe_text(nonce, 64).split("\n")[0] == probe_text(other, 64).split("\n")[0]
    assert same == (nonce == other)
