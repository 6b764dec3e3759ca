"""Everything of mlx-lm that Kakeya builds on, as this version of it has it.

When an upgrade of mlx-lm breaks a test here, the part named in its message has to be looked at before the upgrade.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import sample_utils, tokenizer_utils, utils
from mlx_lm.generate import GenerationBatch, StopSequences, TextStateMachine, make_text_state_machine
from mlx_lm.models import base
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    make_prompt_cache,
)
from mlx_lm.tokenizer_utils import TokenizerWrapper

GREEDY = sample_utils.greedy_sampler

SIGNATURES: list[tuple[Callable[..., Any], str, str]] = [
    (
        GenerationBatch.__init__,
        "self model uids inputs prompt_cache tokens samplers fallback_sampler logits_processors stop_sequences"
        " max_tokens",
        "engine/decode.py",
    ),
    (GenerationBatch.empty, "model fallback_sampler", "engine/decode.py"),
    (GenerationBatch.extend, "self batch", "engine/decode.py"),
    (GenerationBatch.filter, "self keep", "engine/decode.py"),
    (GenerationBatch.next, "self", "engine/decode.py"),
    (StopSequences.__init__, "self stop_sequences", "engine/decode.py"),
    (make_prompt_cache, "model max_kv_size", "engine/leaves.py"),
    (RotatingKVCache.__init__, "self max_size keep", "engine/sink_window.py"),
    (RotatingKVCache.make_mask, "self N window_size return_array", "engine/sink_window.py"),
    (BatchKVCache.make_mask, "self N return_array kwargs", "engine/sink_window.py"),
    (base.create_attention_mask, "h cache window_size return_array", "engine/sink_window.py"),
    (sample_utils.apply_top_k, "logprobs top_k", "engine/sampling.py"),
    (sample_utils.apply_top_p, "logprobs top_p", "engine/sampling.py"),
    (sample_utils.apply_min_p, "logprobs min_p min_tokens_to_keep", "engine/sampling.py"),
    (
        sample_utils.make_logits_processors,
        "logit_bias repetition_penalty repetition_context_size presence_penalty presence_context_size"
        " frequency_penalty frequency_context_size",
        "engine/sampling.py",
    ),
    (
        utils.load_model,
        "model_path lazy strict model_config get_model_classes trust_remote_code",
        "engine/identify.py",
    ),
    (utils.load_tokenizer, "model_path tokenizer_config_extra eos_token_ids", "engine/engine.py"),
    (make_text_state_machine, "tokenizer stop_words", "engine/text.py"),
    (TextStateMachine.make_state, "self initial", "engine/text.py"),
    (TextStateMachine.split, "state text", "engine/text.py"),
    (TextStateMachine.flush, "state", "engine/text.py"),
    (TokenizerWrapper.apply_chat_template, "self args tokenize kwargs", "engine/text.py"),
    (TokenizerWrapper.rfind_think_start, "self tokens start end", "engine/text.py"),
]

ATTRIBUTES: list[tuple[Any, str, str]] = [
    (KVCache(), "keys values offset state step merge", "engine/assembly.py and blocks.py"),
    (RotatingKVCache(8), "keys values offset max_size keep _idx state merge _temporal_order", "engine/sink_window.py"),
    (ArraysCache(2), "cache state lengths left_padding merge", "engine/assembly.py and blocks.py"),
    (CacheList(KVCache()), "caches state merge", "engine/leaves.py"),
    (GenerationBatch.empty(None, GREEDY), "uids prompt_cache tokens", "engine/decode.py"),
]

TOKENIZER_ATTRIBUTES = (
    "has_chat_template has_tool_calling has_thinking eos_token_ids detokenizer tool_call_start tool_call_end"
    " tool_parser response_initial_state response_transitions structural_markers think_start think_end encode decode"
)


def changed(what: str, where: str) -> str:
    return f"mlx-lm {version('mlx-lm')} has changed {what}; kakeya_ops/{where} relies on it"


@pytest.mark.parametrize(
    ("function", "parameters", "where"), SIGNATURES, ids=lambda v: getattr(v, "__qualname__", None)
)
def test_signatures(function: Callable[..., Any], parameters: str, where: str) -> None:
    found = " ".join(inspect.signature(function).parameters)
    assert found == parameters, changed(f"the parameters of {function.__qualname__}", where)


@pytest.mark.parametrize(("value", "names", "where"), ATTRIBUTES, ids=lambda v: type(v).__name__)
def test_attributes(value: Any, names: str, where: str) -> None:
    missing = [name for name in names.split() if not hasattr(value, name)]
    assert not missing, changed(f"{type(value).__name__}: no {missing}", where)


class Tally:
    """A model whose next token is the last one plus one, and whose cache counts what it was fed."""

    def __init__(self) -> None:
        self.fed: list[list[int]] = []

    def __call__(self, inputs: mx.array, cache: list[Any]) -> mx.array:
        self.fed.append(inputs[:, -1].tolist())
        rows = mx.zeros((inputs.shape[0], 1, inputs.shape[1], 4))
        for leaf in cache:
            leaf.update_and_fetch(rows, rows)
        return 10.0 * (mx.arange(32) == inputs[..., None] + 1)


def sequence(
    model: Tally,
    uid: int,
    prompt: list[int],
    *,
    max_tokens: int = 4,
    stop: int = 31,
    processors: Sequence[Callable[..., mx.array]] = (),
) -> GenerationBatch:
    cache = KVCache()
    rows = mx.zeros((1, 1, len(prompt) - 1, 4))
    cache.update_and_fetch(rows, rows)
    return GenerationBatch(
        model,
        uids=[uid],
        inputs=mx.array(prompt[-1:]),
        prompt_cache=[cache.merge([cache])],
        tokens=[prompt[:-1]],
        samplers=[GREEDY],
        fallback_sampler=GREEDY,
        logits_processors=[list(processors)],
        stop_sequences=[StopSequences([(stop,)])],
        max_tokens=[max_tokens],
    )


class TestGenerationBatch:
    def test_a_response_carries_what_is_reported(self) -> None:
        found = {field.name for field in fields(GenerationBatch.Response)}
        assert {"uid", "token", "logprobs", "finish_reason"} <= found, changed("Response", "engine/decode.py")

    def test_the_last_token_of_the_prompt_is_the_first_step(self) -> None:
        model = Tally()
        batch = sequence(model, 7, [3, 4, 5], max_tokens=2)
        assert model.fed == [[5]]
        first, second = batch.next()[0], batch.next()[0]
        assert (first.uid, first.token, first.finish_reason) == (7, 6, None)
        assert (second.token, second.finish_reason) == (7, "length")
        assert mx.argmax(first.logprobs).item() == 6
        assert first.logprobs.shape == (32,)
        assert mx.exp(first.logprobs).sum().item() == pytest.approx(1)
        assert batch.uids == []
        assert batch.next() == []

    def test_a_stop_sequence_ends_with_its_token(self) -> None:
        batch = sequence(Tally(), 1, [3, 4], max_tokens=9, stop=6)
        assert [(r.token, r.finish_reason) for _ in range(2) for r in batch.next()] == [(5, None), (6, "stop")]

    def test_sequences_join_an_empty_and_a_running_batch(self) -> None:
        model = Tally()
        batch = GenerationBatch.empty(model, GREEDY)
        assert len(batch) == 0
        batch.extend(sequence(model, 1, [3, 4]))
        assert [r.token for r in batch.next()] == [5]
        batch.extend(sequence(model, 2, [20, 21, 22]))
        assert [(r.uid, r.token) for r in batch.next()] == [(1, 6), (2, 23)]
        assert batch.uids == [1, 2]
        assert batch.prompt_cache[0].offset.tolist() == [4, 4]

    def test_filter_keeps_the_named_places(self) -> None:
        model = Tally()
        batch = sequence(model, 1, [3, 4])
        batch.extend(sequence(model, 2, [20, 21, 22]))
        batch.filter([1])
        assert [(r.uid, r.token) for r in batch.next()] == [(2, 23)]
        batch.filter([])
        assert len(batch) == 0
        batch.extend(sequence(model, 3, [8, 9]))
        assert [(r.uid, r.token) for r in batch.next()] == [(3, 10)]

    def test_processors_see_every_token_so_far(self) -> None:
        seen: list[list[int]] = []

        def note(tokens: mx.array, logits: mx.array) -> mx.array:
            seen.append(tokens.tolist())
            return logits

        batch = sequence(Tally(), 1, [3, 4, 5], processors=[note])
        batch.extend(sequence(Tally(), 2, [8, 9]))
        batch.next()
        batch.next()
        assert seen == [[3, 4, 5], [3, 4, 5, 6], [3, 4, 5, 6, 7]]


class TestCaches:
    def rows(self, first: int, count: int) -> mx.array:
        return mx.arange(first, first + count, dtype=mx.float32).reshape(1, 1, count, 1)

    def test_kv_cache_grows_in_steps_of_256(self) -> None:
        cache = KVCache()
        for first in (0, 128, 256):
            cache.update_and_fetch(self.rows(first, 128), self.rows(first, 128))
            assert cache.keys.shape[2] % 256 == 0, changed("KVCache's growth", "engine/assembly.py")
        assert (cache.offset, cache.keys.shape[2]) == (384, 512)
        assert cache.keys[0, 0, :384, 0].tolist() == list(range(384))

    def test_a_chunk_ends_a_rotating_cache_in_temporal_order(self) -> None:
        cache = RotatingKVCache(max_size=8)
        for first in (0, 5, 10):
            cache.update_and_fetch(self.rows(first, 5), self.rows(first, 5))
        assert (cache.offset, cache._idx) == (15, 12), changed("RotatingKVCache", "engine/blocks.py")
        assert cache.keys[0, 0, :, 0].tolist() == list(range(3, 15))

    def test_a_full_rotating_cache_may_hold_just_its_window(self) -> None:
        cache = RotatingKVCache(max_size=8)
        cache.keys = cache.values = self.rows(7, 8)
        cache.offset, cache._idx = 15, 8
        keys, _ = cache.update_and_fetch(self.rows(15, 1), self.rows(15, 1))
        assert sorted(keys[0, 0, :, 0].tolist()) == list(range(8, 16)), changed("RotatingKVCache", "engine/assembly.py")

    def test_states_are_replaced_not_changed(self) -> None:
        """A recurrent layer's exported state must not be written to by the next chunk."""
        cache = ArraysCache(2)
        cache[0] = first = mx.zeros((1, 3))
        cache[0] = cache[0] + 1
        assert cache.cache[0] is not first
        assert first.tolist() == [[0, 0, 0]]

    @pytest.mark.parametrize(
        ("leaf", "batched"),
        [(KVCache(), BatchKVCache), (RotatingKVCache(8), BatchRotatingKVCache), (ArraysCache(2), ArraysCache)],
        ids=lambda v: getattr(v, "__name__", None),
    )
    def test_merge_makes_the_batched_twin(self, leaf: Any, batched: type) -> None:
        merged = leaf.merge([leaf, leaf])
        assert type(merged) is batched, changed(f"what {type(leaf).__name__}.merge makes", "engine/decode.py")
        for method in ("extend", "filter", "extract", "nbytes", "state"):
            assert hasattr(merged, method)

    def test_models_without_a_list_of_their_own_get_plain_caches(self, tiny_llama: Path) -> None:
        model: Any = utils.load_model(tiny_llama)[0]
        assert [type(leaf) for leaf in make_prompt_cache(model)] == [KVCache, KVCache]

    def test_masks_are_asked_of_the_cache_before_it_is_fed(self) -> None:
        asked: list[tuple[Any, ...]] = []

        class Asked:
            def make_mask(self, N: int, **options: Any) -> str:
                asked.append((N, options))
                return "causal"

        base.create_attention_mask(mx.zeros((1, 3, 4)), Asked(), window_size=5)
        assert asked == [(3, {"return_array": False, "window_size": 5})], changed(
            "create_attention_mask", "engine/sink_window.py"
        )


class TestLoading:
    def test_a_model_comes_with_its_configuration(self, tiny_llama: Path) -> None:
        model, config = utils.load_model(tiny_llama, lazy=True)
        assert config["model_type"] == "llama"
        assert model.model_type == "llama"
        assert callable(model)

    def test_a_tokenizer_has_what_the_text_door_uses(self, tiny_llama_with_tools: Path) -> None:
        tokenizer: Any = utils.load_tokenizer(tiny_llama_with_tools, eos_token_ids=[3, 1])
        missing = [name for name in TOKENIZER_ATTRIBUTES.split() if not hasattr(tokenizer, name)]
        assert not missing, changed(f"TokenizerWrapper: no {missing}", "engine/text.py")
        assert tokenizer.eos_token_ids == {1, 3}
        assert isinstance(tokenizer.detokenizer, tokenizer_utils.BPEStreamingDetokenizer)
        assert len(tokenizer.detokenizer.tokenmap) == len(tokenizer)
        assert (tokenizer.tool_call_start, tokenizer.tool_call_end) == ("<tool_call>", "</tool_call>")

    def test_text_is_split_at_markers(self, tiny_llama_with_tools: Path) -> None:
        tokenizer: Any = utils.load_tokenizer(tiny_llama_with_tools)
        machine: Any = make_text_state_machine(tokenizer)
        state, parts = TextStateMachine.split(machine.make_state("normal"), "one<tool_call>{}</tool_call>two<tool_")
        assert [part for part in parts if part[1]] == [("normal", "one"), ("tool", "{}"), ("normal", "two")]
        assert TextStateMachine.flush(state)[1:] == ("<tool_", "normal")


class TestSampling:
    def test_greedy_takes_the_largest_of_each_row(self) -> None:
        assert GREEDY(mx.array([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])).tolist() == [1, 0]

    def test_filters_leave_the_likely_tokens(self) -> None:
        logprobs = mx.log(mx.array([[0.5, 0.3, 0.15, 0.05]]))
        for filtered in (
            sample_utils.apply_top_k(logprobs, 2),
            sample_utils.apply_top_p(logprobs, 0.75),
            sample_utils.apply_min_p(logprobs, 0.5),
        ):
            assert (filtered > -mx.inf).tolist() == [[True, True, False, False]], changed(
                "a filter", "engine/sampling.py"
            )

    def test_processors_are_made_only_for_what_is_asked(self) -> None:
        assert sample_utils.make_logits_processors() == []
        biased = sample_utils.make_logits_processors({2: 5.0}, presence_penalty=1.0)
        assert len(biased) == 2
        logits = biased[0](mx.array([0]), mx.zeros((1, 4)))
        assert logits.tolist() == [[0, 0, 5, 0]]
        assert biased[1](mx.array([0, 0, 3]), mx.zeros((1, 4))).tolist() == [[-1, 0, 0, -1]]
