"""The scheduler: worked examples, and properties of every decision."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kakeya_ops.engine.rate import PrefillCurve
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.serving.scheduler import (
    DEFAULT_BYTES_PER_SECOND,
    DEFAULT_TOKENS_PER_SECOND,
    Candidate,
    Local,
    Rules,
    choose,
    crossover_tokens,
)

BLOCK_TOKENS = 64
ROW_BYTES = 1000
FULL = PartLayout("full", (ArrayLayout(0, "keys", "float32", (1, BLOCK_TOKENS, ROW_BYTES // 4)),))
LAYOUTS = {
    "full": KvLayout(BLOCK_TOKENS, ("KVCache",), (FULL,)),
    "windowed": KvLayout(BLOCK_TOKENS, ("",), (replace(FULL, kind="window", sink=4, window=300),)),
    "hybrid": KvLayout(
        BLOCK_TOKENS, ("", ""), (FULL, PartLayout("state", (ArrayLayout(1, "0", "float32", (100, 100)),)))
    ),
}
PLAIN = LAYOUTS["full"]
MEASURED = Rules("measured", min_tokens=128)
IDLE = Local(resume_blocks=0, tokens_per_second=100.0, queue_seconds=0.0, decoding=0)
WORKER = Candidate("worker", True, 0, 400.0, 0.0, rtt_seconds=0.001, bytes_per_second=1e8)
PROMPT = 10 * BLOCK_TOKENS + 1

rates = st.one_of(st.none(), st.floats(0.1, 1e6))
seconds = st.floats(0, 1e4)
curves = st.builds(PrefillCurve, st.floats(1e-6, 1), st.floats(0, 1e-4))
layouts = st.sampled_from(sorted(LAYOUTS)).map(LAYOUTS.__getitem__)
prompts = st.integers(1, 40 * BLOCK_TOKENS)
locals_ = st.builds(
    Local,
    resume_blocks=st.integers(0, 45),
    tokens_per_second=rates,
    queue_seconds=seconds,
    decoding=st.integers(0, 9),
    curve=st.one_of(st.none(), curves),
)
candidates = st.builds(
    Candidate,
    node=st.sampled_from(["anna", "bert", "carl", "dora"]),
    computes=st.booleans(),
    resume_blocks=st.integers(0, 45),
    tokens_per_second=rates,
    queue_seconds=seconds,
    rtt_seconds=st.floats(0, 10),
    bytes_per_second=st.one_of(st.none(), st.floats(1e3, 1e11)),
    curve=st.one_of(st.none(), curves),
    overhead_seconds=st.floats(0, 10),
)
fleets = st.lists(candidates, max_size=4, unique_by=lambda peer: peer.node)
rules_ = st.builds(
    Rules,
    policy=st.sampled_from(["measured", "prefer_remote", "local_only"]),
    min_tokens=st.integers(0, 3000),
    demand=st.sampled_from(["none", "local", "remote"]),
)


def cached(blocks: int, **changes: object) -> Candidate:
    """A peer that only keeps KV."""
    return replace(WORKER, node="cache", computes=False, resume_blocks=blocks, **changes)  # type: ignore[arg-type]


def test_a_faster_worker_computes_a_cold_prompt() -> None:
    decision = choose(PLAIN, PROMPT, IDLE, [WORKER], MEASURED)
    assert (decision.kind, decision.node, decision.blocks) == ("remote_compute", "worker", 10)
    # 641 tokens here; there a round trip, 640 tokens, one block of ten on top, and the last token here.
    assert decision.predicted_seconds == pytest.approx(
        {"local": 6.41, "remote_compute worker": 0.001 + 1.6 + 0.00064 + 0.01}
    )
    assert "6.410 s locally" in decision.reason


def test_an_equal_worker_is_no_gain_for_an_idle_head_but_for_a_busy_one() -> None:
    equal = replace(WORKER, tokens_per_second=100.0)
    assert choose(PLAIN, PROMPT, IDLE, [equal], MEASURED).kind == "local"
    assert choose(PLAIN, PROMPT, replace(IDLE, decoding=1), [equal], MEASURED).kind == "remote_compute"
    assert choose(PLAIN, PROMPT, replace(IDLE, queue_seconds=3.0), [equal], MEASURED).kind == "remote_compute"


def test_what_a_peer_holds_is_fetched_and_not_computed() -> None:
    decision = choose(PLAIN, PROMPT, IDLE, [WORKER, cached(10)], MEASURED)
    assert (decision.kind, decision.node, decision.blocks) == ("import", "cache", 10)
    decision = choose(PLAIN, PROMPT, IDLE, [cached(4)], MEASURED)
    assert (decision.kind, decision.blocks) == ("import", 4)


def test_a_slow_link_is_worth_nothing() -> None:
    slow = cached(10, bytes_per_second=1e4)
    decision = choose(PLAIN, PROMPT, IDLE, [slow], MEASURED)
    assert decision.kind == "local"
    assert decision.predicted_seconds["import cache"] > 64


def test_what_the_head_holds_spares_a_worker_nothing_but_the_transfer() -> None:
    local = replace(IDLE, resume_blocks=8)
    decision = choose(PLAIN, PROMPT, local, [WORKER], MEASURED)
    # The worker has nothing: it would compute all 640 tokens for the sake of the last 128.
    assert decision.kind == "local"
    assert decision.predicted_seconds["remote_compute worker"] > 640 / 400
    warm = replace(WORKER, resume_blocks=8)
    assert choose(PLAIN, PROMPT, local, [warm], MEASURED).kind == "remote_compute"


def test_the_heads_queue_holds_up_what_comes_from_elsewhere_too() -> None:
    busy = replace(IDLE, queue_seconds=5.0)
    predicted = choose(PLAIN, PROMPT, busy, [WORKER], MEASURED).predicted_seconds
    assert predicted["remote_compute worker"] == pytest.approx(5.01)
    assert predicted["local"] == pytest.approx(11.41)


def test_only_what_a_window_still_needs_is_reckoned_with() -> None:
    far = cached(10, bytes_per_second=1e5)
    whole = choose(LAYOUTS["full"], PROMPT, IDLE, [far], MEASURED).predicted_seconds
    windowed = choose(LAYOUTS["windowed"], PROMPT, IDLE, [far], MEASURED).predicted_seconds
    # Five blocks of the window and the one with the sinks, of ten.
    assert windowed["import cache"] - 0.011 == pytest.approx(0.6 * (whole["import cache"] - 0.011))


def test_unmeasured_counts_as_the_stated_defaults() -> None:
    unknown = replace(WORKER, tokens_per_second=None, bytes_per_second=None, rtt_seconds=0.0)
    predicted = choose(PLAIN, PROMPT, replace(IDLE, tokens_per_second=None), [unknown], MEASURED).predicted_seconds
    assert predicted["local"] == PROMPT / DEFAULT_TOKENS_PER_SECOND
    own, tail = 1 / DEFAULT_TOKENS_PER_SECOND, FULL.nbytes / DEFAULT_BYTES_PER_SECOND
    assert predicted["remote_compute worker"] == pytest.approx(640 / DEFAULT_TOKENS_PER_SECOND + tail + own)


@pytest.mark.parametrize(
    ("prompt_tokens", "local", "rules", "reason"),
    [
        (PROMPT, IDLE, replace(MEASURED, demand="local"), "demanded"),
        (PROMPT, IDLE, replace(MEASURED, policy="local_only"), "local_only"),
        (PROMPT, IDLE, replace(MEASURED, min_tokens=641), "min_tokens 641"),
        (PROMPT, replace(IDLE, resume_blocks=10), MEASURED, "own pool"),
        (PROMPT, replace(IDLE, resume_blocks=10), replace(MEASURED, demand="remote"), "own pool"),
        (BLOCK_TOKENS, IDLE, replace(MEASURED, min_tokens=0), "shorter than one block"),
    ],
)
def test_some_things_are_settled_whatever_peers_may_offer(
    prompt_tokens: int, local: Local, rules: Rules, reason: str
) -> None:
    offered, alone = (choose(PLAIN, prompt_tokens, local, peers, rules) for peers in ([WORKER, cached(10)], []))
    assert offered == alone
    assert (offered.kind, offered.settled) == ("local", True)
    assert reason in offered.reason


def test_without_help_the_head_does_it_and_says_that_others_might() -> None:
    useless = cached(0)
    decision = choose(PLAIN, PROMPT, IDLE, [useless], replace(MEASURED, policy="prefer_remote"))
    assert (decision.kind, decision.node, decision.settled) == ("local", None, False)
    assert "no healthy peer" in decision.reason


def test_at_equal_times_nothing_is_computed_twice() -> None:
    held = replace(cached(10), node="zoe")
    busy = replace(IDLE, queue_seconds=100.0)
    assert choose(PLAIN, PROMPT, busy, [WORKER, held], MEASURED).node == "zoe"


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, rules_)
def test_every_decision_is_one_that_can_be_carried_out(
    layout: KvLayout, prompt_tokens: int, local: Local, peers: list[Candidate], rules: Rules
) -> None:
    decision = choose(layout, prompt_tokens, local, peers, rules)
    most = layout.resumable_blocks(prompt_tokens)
    own = min(local.resume_blocks, most)
    assert own <= decision.blocks <= most
    assert decision.reason
    assert (decision.kind == "local") == (decision.node is None)
    if decision.node is None:
        assert decision.blocks == own
        return
    (peer,) = (peer for peer in peers if peer.node == decision.node)
    assert decision.blocks > own
    if decision.kind == "import":
        assert decision.blocks == min(peer.resume_blocks, most)
    else:
        assert peer.computes
        assert decision.blocks == most


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, rules_)
def test_predictions_are_finite_and_the_best_is_chosen_by_measure(
    layout: KvLayout, prompt_tokens: int, local: Local, peers: list[Candidate], rules: Rules
) -> None:
    decision = choose(layout, prompt_tokens, local, peers, rules)
    assert all(math.isfinite(value) and value >= 0 for value in decision.predicted_seconds.values())
    name = "local" if decision.node is None else f"{decision.kind} {decision.node}"
    offers = {option: value for option, value in decision.predicted_seconds.items() if option != "local"}
    if decision.node:
        assert decision.predicted_seconds[name] == min(offers.values())
    if rules.policy == "measured" and rules.demand == "none":
        assert decision.predicted_seconds[name] == min(decision.predicted_seconds.values())


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, rules_, st.randoms(use_true_random=False))
def test_the_order_of_the_peers_does_not_matter(
    layout: KvLayout, prompt_tokens: int, local: Local, peers: list[Candidate], rules: Rules, order: random.Random
) -> None:
    shuffled = order.sample(peers, len(peers))
    assert choose(layout, prompt_tokens, local, shuffled, rules) == choose(layout, prompt_tokens, local, peers, rules)


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, st.integers(1, 20))
def test_more_running_streams_never_bring_work_to_the_head(
    layout: KvLayout, prompt_tokens: int, local: Local, peers: list[Candidate], more: int
) -> None:
    rules = replace(MEASURED, min_tokens=0)
    busier = replace(local, decoding=local.decoding + more)
    if choose(layout, prompt_tokens, local, peers, rules).kind != "local":
        assert choose(layout, prompt_tokens, busier, peers, rules).kind != "local"


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, rules_)
def test_demands_and_policies_are_obeyed_where_that_is_possible(
    layout: KvLayout, prompt_tokens: int, local: Local, peers: list[Candidate], rules: Rules
) -> None:
    kind = choose(layout, prompt_tokens, local, peers, rules).kind
    most = layout.resumable_blocks(prompt_tokens)
    own = min(local.resume_blocks, most)
    able = [peer for peer in peers if peer.computes or min(peer.resume_blocks, most) > own]
    missing = (most - own) * BLOCK_TOKENS
    if rules.demand == "local" or not missing or not able:
        assert kind == "local"
    elif rules.demand == "remote":
        assert kind != "local"
    elif rules.policy == "local_only" or missing < rules.min_tokens:
        assert kind == "local"
    elif rules.policy == "prefer_remote":
        assert kind != "local"


@settings(deadline=None)
@given(layouts, st.integers(2, 40), locals_, candidates, st.data())
def test_a_whole_prefix_is_rather_fetched_than_computed_over_an_equal_link(
    layout: KvLayout, most: int, local: Local, worker: Candidate, data: st.DataObject
) -> None:
    local = replace(local, resume_blocks=data.draw(st.integers(0, most - 1)))
    worker = replace(worker, node="anna", computes=True, resume_blocks=data.draw(st.integers(0, most - 1)))
    keeper = replace(worker, node="bert", computes=False, resume_blocks=most)
    rules = replace(MEASURED, policy="prefer_remote", min_tokens=0)
    decision = choose(layout, most * BLOCK_TOKENS + 1, local, [worker, keeper], rules)
    predicted = decision.predicted_seconds
    assert predicted["import bert"] <= predicted["remote_compute anna"]
    assert decision.kind == "import"


@settings(deadline=None)
@given(layouts, prompts, locals_, candidates, st.floats(1, 100))
def test_a_faster_peer_is_never_predicted_slower(
    layout: KvLayout, prompt_tokens: int, local: Local, peer: Candidate, factor: float
) -> None:
    peer = replace(peer, tokens_per_second=100.0, bytes_per_second=1e6, curve=None)
    better = replace(
        peer,
        tokens_per_second=100.0 * factor,
        bytes_per_second=1e6 * factor,
        queue_seconds=peer.queue_seconds / factor,
        rtt_seconds=peer.rtt_seconds / factor,
    )
    slow, fast = (choose(layout, prompt_tokens, local, [one], MEASURED).predicted_seconds for one in (peer, better))
    assert slow.keys() == fast.keys()
    assert all(fast[option] <= slow[option] * (1 + 1e-9) for option in slow)


def test_a_curve_knows_that_long_prompts_cost_more() -> None:
    bent = replace(IDLE, curve=PrefillCurve(0.001, 1e-5))
    predicted = choose(PLAIN, PROMPT, bent, [], MEASURED).predicted_seconds
    assert predicted["local"] == pytest.approx(0.641 + 1e-5 * 641**2)
    resumed = choose(PLAIN, PROMPT, replace(bent, resume_blocks=5), [], MEASURED).predicted_seconds
    assert resumed["local"] == pytest.approx(0.321 + 1e-5 * (641**2 - 320**2))


def test_one_that_fails_is_left_for_one_that_does_not_and_tried_when_it_is_worth_it() -> None:
    flapping, sound = replace(WORKER, node="anna", doubt=0.5), replace(WORKER, node="bert", tokens_per_second=200.0)
    assert choose(PLAIN, PROMPT, IDLE, [flapping, sound], MEASURED).node == "bert"
    assert choose(PLAIN, PROMPT, IDLE, [flapping], MEASURED).node == "anna"  # 1.6 s and half of 6.4 s
    broken = replace(WORKER, doubt=0.875)
    decision = choose(PLAIN, PROMPT, IDLE, [broken], MEASURED)
    assert decision.kind == "local"
    assert "failed lately" in decision.reason


def test_what_is_under_way_is_joined_and_not_computed_beside_it() -> None:
    equal = replace(WORKER, tokens_per_second=100.0, resume_blocks=4, bytes_per_second=1.1e5)
    assert choose(PLAIN, PROMPT, IDLE, [equal], MEASURED).kind == "import"  # four blocks, and the rest here
    joined = choose(PLAIN, PROMPT, IDLE, [replace(equal, under_way=True)], MEASURED)
    assert (joined.kind, joined.blocks) == ("remote_compute", 10)
    cold = replace(equal, resume_blocks=0)
    assert choose(PLAIN, PROMPT, IDLE, [cold], MEASURED).kind == "local"
    assert choose(PLAIN, PROMPT, IDLE, [replace(cold, under_way=True)], MEASURED).kind == "remote_compute"
    slow = replace(cold, under_way=True, tokens_per_second=50.0)
    assert choose(PLAIN, PROMPT, IDLE, [slow], MEASURED).kind == "local"


@settings(deadline=None)
@given(layouts, prompts, locals_, fleets, candidates, st.floats(0.5, 1))
def test_one_in_doubt_is_never_preferred_to_its_equal(
    layout: KvLayout, prompt_tokens: int, local: Local, others: list[Candidate], peer: Candidate, doubt: float
) -> None:
    sound, broken = replace(peer, node="yvonne"), replace(peer, node="adam", doubt=doubt)
    decision = choose(layout, prompt_tokens, local, [*others, broken, sound], replace(MEASURED, policy="prefer_remote"))
    if decision.predicted_seconds["local"] > 0:
        assert decision.node != "adam"


@settings(deadline=None, max_examples=50)
@given(layouts, locals_, candidates, st.integers(0, 2000), st.integers(64, 4096))
def test_a_crossover_is_where_the_decision_changes(
    layout: KvLayout, local: Local, peer: Candidate, min_tokens: int, context_tokens: int
) -> None:
    rules = Rules("measured", min_tokens)
    local, peer = replace(local, resume_blocks=0), replace(peer, resume_blocks=0)
    found = crossover_tokens(layout, local, peer, rules, context_tokens=context_tokens)
    kinds = {
        blocks * BLOCK_TOKENS: choose(layout, blocks * BLOCK_TOKENS + 1, local, [peer], rules).kind
        for blocks in range(1, context_tokens // BLOCK_TOKENS + 1)
    }
    assert found == next((length for length, kind in kinds.items() if kind == "remote_compute"), None)


def test_where_a_worker_begins_to_help() -> None:
    costly = replace(WORKER, overhead_seconds=1.0)
    # 64 tokens take 0.64 s here, 0.16 s there; the overhead is won back with the third block.
    assert crossover_tokens(PLAIN, IDLE, costly, MEASURED) == 3 * BLOCK_TOKENS
    assert crossover_tokens(PLAIN, IDLE, costly, replace(MEASURED, min_tokens=700)) == 11 * BLOCK_TOKENS
    assert crossover_tokens(PLAIN, IDLE, replace(costly, tokens_per_second=100.0), MEASURED) is None
    assert crossover_tokens(PLAIN, IDLE, costly, MEASURED, context_tokens=2 * BLOCK_TOKENS) is None
    assert crossover_tokens(PLAIN, IDLE, replace(costly, computes=False), MEASURED) is None
    assert crossover_tokens(PLAIN, IDLE, costly, replace(MEASURED, policy="local_only")) is None
    bent = replace(IDLE, curve=PrefillCurve(1 / 400, 1e-6))
    assert crossover_tokens(PLAIN, bent, costly, MEASURED) == 16 * BLOCK_TOKENS  # 1e-6 n² is then over 1 s


@settings(deadline=None)
@given(locals_, candidates, st.floats(1, 10), st.floats(1, 10))
def test_a_better_worker_never_begins_to_help_later(local: Local, peer: Candidate, faster: float, wider: float) -> None:
    peer = replace(peer, computes=True, curve=PrefillCurve(1e-3, 1e-7), bytes_per_second=1e6)
    better = replace(peer, curve=PrefillCurve(1e-3 / faster, 1e-7 / faster), bytes_per_second=1e6 * wider)
    before, after = (crossover_tokens(PLAIN, local, one, MEASURED, context_tokens=2048) for one in (peer, better))
    assert before is None or (after is not None and after <= before)
