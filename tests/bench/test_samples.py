from __future__ import annotations

from typing import Any

import pytest

from bench.taken import receipt_of
from kakeya_ops.bench.samples import MODES, Kind, NotMeasured, read_sample

KINDS: list[Kind] = ["local", "remote", "remote_hit", "hot_hit"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_read_from_its_receipt(kind: Kind) -> None:
    sample = read_sample(kind, 1000, receipt_of(kind))
    assert (sample.kind, sample.length, sample.prompt_tokens) == (kind, 1000, 1001)
    assert sample.first_token_seconds == pytest.approx(3.0)  # without the lookup
    assert (sample.node, sample.epoch) == (("worker", 7) if "remote" in kind else (None, None))


def test_a_local_prefill_is_measured_apart_from_what_comes_before_and_after() -> None:
    sample = read_sample("local", 1000, receipt_of("local"))
    assert sample.tokens_per_second == pytest.approx(1000 / 2.0)
    assert sample.bytes_per_second is None


def test_a_workers_prefill_is_measured_by_the_worker() -> None:
    sample = read_sample("remote", 1000, receipt_of("remote"))
    assert sample.tokens_per_second == pytest.approx(960 / 2.0)


def test_a_hit_tells_the_rate_of_the_link() -> None:
    assert read_sample("remote_hit", 1000, receipt_of("remote_hit")).bytes_per_second == pytest.approx(960_000 / 0.5)


def test_times_that_are_not_told_are_not_known() -> None:
    receipt = receipt_of("local")
    del receipt["times"]["prefilled"], receipt["times"]["lookup"]
    sample = read_sample("local", 1000, receipt)
    assert (sample.tokens_per_second, sample.lookup_seconds) == (None, 0.0)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("remote", {"fallback": {"message": "the worker died"}, "remote": None}, "the worker died"),
        ("remote", {"remote": None}, "nothing came from another node: told so"),
        ("remote", {"remote": receipt_of("remote_hit")["remote"]}, "held the prompt already"),
        ("remote_hit", {"remote": receipt_of("remote")["remote"]}, "computed again"),
        ("local", {"remote": receipt_of("remote")["remote"]}, "another node helped"),
        ("hot_hit", {"local_pool_tokens": 0}, "did not keep"),
        ("local", {"times": {}}, "first_token"),
        ("local", {"times": None}, "times"),
    ],
)
def test_what_went_another_way_is_not_measured(kind: Kind, change: dict[str, Any], said: str) -> None:
    with pytest.raises(NotMeasured, match=said):
        read_sample(kind, 1000, receipt_of(kind) | change)


def test_no_directive_contradicts_its_kind() -> None:
    assert set(MODES) == set(KINDS)
    assert MODES["hot_hit"] == frozenset()
