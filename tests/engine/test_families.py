"""Every family carried exactly: one engine's blocks, imported by another, give the bits of an uninterrupted run.

Runs on MLX's own BLAS, which is exact for any batch and chunking; `test_families_openblas.py` is the leg on which a
wrong grid shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from family_runs import (
    BLOCK_TOKENS,
    BLOCKS,
    PROMPT,
    SETTINGS,
    Answer,
    Parts,
    answer,
    answer_together,
    assemble,
    deviation,
    engine_of,
    export,
    uncompiled,
)
from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.engine import Engine
from kakeya_ops.engine.identify import load_weights
from kakeya_ops.engine.leaves import make_cache
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.model.directory import ModelDirectory
from tiny_models import FAMILIES, MakeFamily

RECURRENT = ("granite_hybrid", "mamba2", "qwen3_next")
LENGTHS = (BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 2 * BLOCK_TOKENS + 1, len(PROMPT))


@dataclass
class Pair:
    """A worker, the blocks that it made of `PROMPT`, a head, and what the head makes of prompts all by itself."""

    path: Path
    head: Engine
    parts: Parts
    _local: dict[int, Answer] = field(default_factory=dict)

    @property
    def layout(self) -> KvLayout:
        return self.head.layout

    def local(self, length: int = len(PROMPT)) -> Answer:
        if length not in self._local:
            self._local[length] = answer(self.head, PROMPT[:length])
        return self._local[length]

    def imported(self, blocks: int, length: int = len(PROMPT), **options: Any) -> Answer:
        return answer(self.head, PROMPT[:length], prefix=assemble(self.head, self.parts, blocks, **options))


@pytest.fixture(scope="module", autouse=True)
def _no_compiler() -> Iterator[None]:
    with uncompiled():
        yield


@pytest.fixture(scope="module")
def pairs(tiny_family: MakeFamily) -> Iterator[Any]:
    """``pairs(family, settings)``: engines that are made at the first use and closed at the end."""
    made: dict[tuple[str, str], Pair] = {}
    with ExitStack() as open_engines:

        def pair(family: str, settings: str) -> Pair:
            key = family, settings
            if key not in made:
                path = tiny_family(family)
                with engine_of(path, SETTINGS[settings]) as worker:
                    parts = export(worker, PROMPT, BLOCKS)
                made[key] = Pair(path, open_engines.enter_context(engine_of(path, SETTINGS[settings])), parts)
            return made[key]

        yield pair


@pytest.fixture(params=[(family, settings) for family in FAMILIES for settings in SETTINGS], ids="-".join)
def pair(request: pytest.FixtureRequest, pairs: Any) -> Pair:
    """One family under one of the cache settings."""
    made: Pair = pairs(*request.param)
    return made


class TestImport:
    @pytest.mark.parametrize("length", LENGTHS)
    def test_an_imported_prefix_gives_the_bits_of_a_local_run(self, pair: Pair, length: int) -> None:
        whole = (length - 1) // BLOCK_TOKENS
        assert pair.layout.resumable_blocks(length) == whole
        assert sorted(pair.local(length).computed) == list(range(whole))
        for blocks in {whole, (whole + 1) // 2} - {0}:
            imported = pair.imported(blocks, length)
            assert imported.events == pair.local(length).events
            assert sorted(imported.computed) == list(range(blocks, whole))

    def test_blocks_are_the_same_bytes_wherever_they_are_computed(self, pair: Pair) -> None:
        for computed in (pair.local().computed, pair.imported(2).computed):
            for block, payloads in computed.items():
                for payload, stored in zip(payloads, pair.parts[block], strict=True):
                    assert stored is not None
                    assert payload is None or payload == stored.data


class TestControls:
    """What would happen if a block were lost: without these the tests above could pass for the wrong reason."""

    def test_every_needed_part_is_needed(self, pair: Pair) -> None:
        for index, part in enumerate(pair.layout.parts):
            needed = list(part.needed_blocks(BLOCKS, BLOCK_TOKENS))
            for block in {needed[0], needed[-1]}:
                blank = pair.imported(BLOCKS, forged={(block, index): bytes(part.nbytes)})
                assert deviation(blank, pair.local()) > 0.05, (part.kind, block)

    def test_a_block_outside_every_window_is_not(self, pair: Pair) -> None:
        for index, part in enumerate(pair.layout.parts):
            if part.kind == "window":
                outside = set(range(BLOCKS)) - set(part.needed_blocks(BLOCKS, BLOCK_TOKENS))
                assert outside
                forged = {(block, index): b"\xff" * part.nbytes for block in outside}
                assert pair.imported(BLOCKS, forged=forged).events == pair.local().events

    @pytest.mark.parametrize("family", RECURRENT)
    def test_a_recurrent_state_alone_is_remembered_for_long(self, pairs: Any, family: str) -> None:
        pair: Pair = pairs(family, "whole")
        index = next(index for index, part in enumerate(pair.layout.parts) if part.kind == "state")
        stored = pair.parts[1][index]
        assert stored is not None
        data, start = bytearray(stored.data), 0
        for array in pair.layout.parts[index].arrays:
            if array.slot == "1":  # slot 0 are the last inputs of the convolution
                data[start : start + array.nbytes] = bytes(array.nbytes)
            start += array.nbytes
        assert deviation(pair.imported(2, forged={(1, index): bytes(data)}), pair.local()) > 0.05

    @pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"mamba2"}))
    def test_the_window_forgets(self, pairs: Any, family: str) -> None:
        whole, windowed = pairs(family, "whole"), pairs(family, "sink-window")
        assert whole.local(33).events == windowed.local(33).events
        assert deviation(whole.local(), windowed.local()) > 0.01


class TestDecoding:
    def test_decoding_together_gives_the_tokens_of_decoding_alone(self, pair: Pair) -> None:
        alone, together = answer_together(pair.head, pair.parts, count=12)
        assert [one.tokens for one in together] == [one.tokens for one in alone]

    def test_the_batch_decodes_what_a_cache_of_one_sequence_would(self, pair: Pair) -> None:
        model = load_weights(ModelDirectory.open(pair.path))[0]
        cache = make_cache(model, pair.head.settings)
        for start in range(0, len(PROMPT) - 1, BLOCK_TOKENS):
            model(mx.array([PROMPT[start : min(start + BLOCK_TOKENS, len(PROMPT) - 1)]]), cache=cache)
            mx.eval([leaf.state for leaf in cache])
        tokens = [PROMPT[-1]]
        for _ in range(12):
            tokens.append(mx.argmax(model(mx.array([tokens[-1:]]), cache=cache)[0, -1]).item())
        assert answer(pair.head, PROMPT, count=12).tokens == tokens[1:]

    @pytest.mark.parametrize("family", FAMILIES)
    def test_chunks_with_sinks_and_window_equal_streaming(self, tiny_family: MakeFamily, family: str) -> None:
        model = load_weights(ModelDirectory.open(tiny_family(family)))[0]
        streamed, chunked = (self.logits_after(model, chunk) for chunk in (1, 20))
        # At most 1e-5 where there is only attention; recurrent layers have another formula for a single token.
        assert np.abs(streamed - chunked).max() < 2e-5 * streamed.std()
        assert np.array_equal(streamed.argmax(-1), chunked.argmax(-1))

    @staticmethod
    def logits_after(model: Any, chunk: int) -> NDArray[np.float32]:
        """Logits of the last 40 of 60 tokens, fed `chunk` at a time; from the 21st on, something is forgotten."""
        cache = make_cache(model, CacheSettings(sink=4, window=16))
        logits = []
        for start in range(0, 60, chunk):
            logits.append(model(mx.array([PROMPT[start : start + chunk]]), cache=cache)[0])
            mx.eval(logits)
        return np.array(mx.concatenate(logits)[-40:])
