"""What the scheduler believes, over real HTTP."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

from front.towns import Town
from kakeya_ops.front.estimates import describe_estimates
from kakeya_ops.serving.scheduler import crossover_tokens
from kakeya_ops.serving.sources import make_candidate


def test_each_machine_and_each_way_is_told(town: Town) -> None:
    told = town.get("/v1/network/estimates")
    assert told["local"]["node"] == "head"
    assert told["local"]["prefill_tokens_per_second"] > 0
    assert told["local"]["prefill_seconds_per_token"] > 0
    [store] = [peer for peer in told["peers"] if peer["node"] == "store"]
    assert (store["node"], store["role"], store["usable"], store["doubt"]) == ("store", "cache", True, 0)
    assert store["rtt_seconds"] > 0
    assert [link["network"] for link in store["links"]] == ["loopback"]
    assert store["crossover_tokens"] is None  # it computes nothing


def test_a_worker_is_told_with_the_length_from_which_it_helps(town: Town) -> None:
    head, fleet = town.service, copy(town.observatory._fleet)
    known = next(known for known in fleet.known() if known.node == "store")
    assert known.card
    assert known.link
    changes = {"role": "worker", "prefill_seconds_per_token": 1e-9, "prefill_seconds_per_square": 0.0}
    worker = replace(known, role="worker", card=known.card.model_copy(update=changes))
    fleet.known = lambda: [worker]  # type: ignore[method-assign]
    [told] = describe_estimates(head, fleet)["peers"]
    assert told["prefill_seconds_per_token"] == 1e-9
    assert worker.card
    peer = make_candidate(worker.card, known.link.to_json(), fleet.expected("store"))
    wanted = crossover_tokens(head.identity.layout, head.idle(), peer, head.rules, context_tokens=head.context_tokens)
    assert told["crossover_tokens"] == wanted
    assert wanted is not None
