from __future__ import annotations

from kakeya_ops.serving.counters import CounterName
from kakeya_ops.status.value import TOTALS
from status.samples import answering, api, card, judged, silent, whole, with_api

SECOND = """
  second:
    role: head
    api: {bind: 127.0.0.1, port: 8081}
    endpoints: [{network: loopback, address: 127.0.0.1, port: 51052}]
"""


def test_every_counter_of_the_contract_is_there() -> None:
    assert tuple(judged(whole()).totals.counters) == tuple(name.value for name in TOTALS)
    assert tuple(name for name in CounterName if name in TOTALS) == TOTALS


def test_heads_are_added_up_and_workers_are_not_counted_twice() -> None:
    second = answering(card("second", "head", counters={"remote_jobs": 5}))
    heard = whole(second=with_api(second, api({}, fallbacks_by_reason={"timeout": 1}, by_worker={"allens": {"x": 2}})))
    heard["head"] = with_api(heard["head"], api({}, fallbacks_by_reason={"timeout": 2}, by_worker={"allens": {"x": 3}}))
    totals = judged(heard, SECOND).totals
    assert totals.counters["remote_jobs"] == 7
    assert totals.counters["tokens_reused"] == 64
    assert totals.fallbacks_by_reason == {"timeout": 3}
    assert totals.by_worker == {"allens": {"x": 5}}


def test_counters_of_a_head_that_is_gone_are_no_totals() -> None:
    heard = whole()
    gone = silent(told=heard["head"].told)
    assert judged(heard | {"head": gone}, later=5).totals.counters["remote_jobs"] == 2
    assert judged(heard | {"head": gone}, later=16).totals.counters["remote_jobs"] is None


def test_nonsense_in_a_summary_is_left_out() -> None:
    heard = whole()
    heard["head"] = with_api(heard["head"], api({}, fallbacks_by_reason=["x"], by_worker={"a": 3, "b": {"y": "z"}}))
    totals = judged(heard).totals
    assert (totals.fallbacks_by_reason, totals.by_worker) == ({}, {"a": {}, "b": {}})
