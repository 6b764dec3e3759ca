"""Decoding: mlx-lm's own `GenerationBatch`, fed with sequences whose whole prefix is already in their cache.

mlx-lm's prompt processing pads prompts together and cuts them where it likes, both off the grid. So prefill is ours,
and a sequence joins the running batch with one token left: the prompt's last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import GenerationBatch, StopSequences
from mlx_lm.sample_utils import greedy_sampler

from kakeya_ops.engine.contract import DecodeRequest, FailedEvent, OnEvent, TokenEvent
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.engine.sampling import build_processors, build_sampler


@dataclass
class Sequence:
    """One sequence that is decoded or about to be; `cancel` may be called from any thread."""

    request: DecodeRequest
    on_event: OnEvent
    cancelled: bool = False

    def cancel(self) -> None:
        """Leave the batch before its next step."""
        self.cancelled = True


class Decoder:
    """The running batch. Compute thread only, but for `len`."""

    def __init__(self, model: Any, eos_token_ids: frozenset[int]) -> None:
        self._model = model
        self._stop = StopSequences([(token,) for token in sorted(eos_token_ids)] or None)
        self._batch = GenerationBatch.empty(model, greedy_sampler)
        self._sequences: dict[int, Sequence] = {}
        self._next_uid = 0

    def __len__(self) -> int:
        return len(self._sequences)

    def insert(self, sequence: Sequence, cache: list[Any]) -> None:
        """Start decoding `sequence`, whose prompt but for the last token is in `cache`."""
        request = sequence.request
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        joining = GenerationBatch(
            self._model,
            uids=[uid],
            inputs=mx.array([request.tokens[-1]]),
            prompt_cache=[leaf.merge([leaf]) for leaf in cache],
            tokens=[list(request.tokens[:-1])],
            samplers=[build_sampler(request.sampling)],
            fallback_sampler=greedy_sampler,
            logits_processors=[build_processors(request.sampling)],
            stop_sequences=[self._stop],
            max_tokens=[request.max_tokens],
        )
        self._batch.extend(joining)
        self._sequences[uid] = sequence

    def step(self) -> bool:
        """Decode one token of every sequence; False when there is none."""
        self._drop_cancelled()
        if not self._sequences:
            return False
        for response in self._batch.next():
            sequence = self._sequences[response.uid]
            if response.finish_reason is not None:
                del self._sequences[response.uid]
            sequence.on_event(_describe(response, sequence.request))
        self._tidy()
        return True

    def fail_all(self, error: Exception) -> None:
        """End every sequence with `error`."""
        self._batch = GenerationBatch.empty(self._model, greedy_sampler)
        while self._sequences:
            self._sequences.popitem()[1].on_event(FailedEvent(error))

    def _drop_cancelled(self) -> None:
        leaving = {uid for uid, sequence in self._sequences.items() if sequence.cancelled}
        if leaving:
            self._batch.filter([index for index, uid in enumerate(self._batch.uids) if uid not in leaving])
            for uid in leaving:
                self._sequences.pop(uid).on_event(FailedEvent(Cancelled()))
            self._tidy()

    def _tidy(self) -> None:
        """Give MLX's spare buffers back when the last sequence has left."""
        if not self._sequences:
            mx.clear_cache()


def _describe(response: Any, request: DecodeRequest) -> TokenEvent:
    wanted = request.sampling.top_logprobs
    if wanted is None:
        return TokenEvent(response.token, response.finish_reason)
    chosen = response.logprobs[response.token].item()
    return TokenEvent(response.token, response.finish_reason, chosen, _most_likely(response.logprobs, wanted))


def _most_likely(logprobs: mx.array, count: int) -> tuple[tuple[int, float], ...]:
    count = min(count, logprobs.size)
    if count == 0:
        return ()
    tokens = mx.argpartition(-logprobs, kth=count - 1)[:count]
    values: Any = logprobs[tokens].tolist()
    names: Any = tokens.tolist()
    return tuple(sorted(zip(names, values, strict=True), key=lambda pair: (-pair[1], pair[0])))


__all__ = ["Decoder", "Sequence"]
