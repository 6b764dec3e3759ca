"""Decoding: mlx-lm's own `GenerationBatch`, fed with sequences whose whole prefix is already in their cache.

mlx-lm's prompt processing pads prompts together and cuts them where it likes, both off the grid. So prefill is ours,
and a sequence joins with one token left: the prompt's last. Rows of like length share a batch, see `grouping`; every
batch makes one step a round. At most one sequence joins, or one batch is changed, between two rounds, and what had to
be copied for it is followed by rounds in which nothing of the kind happens.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import GenerationBatch, StopSequences
from mlx_lm.sample_utils import greedy_sampler

from kakeya_ops.engine.batches import batch_of_one, divide
from kakeya_ops.engine.contract import DecodeRequest, FailedEvent, OnEvent, TokenEvent
from kakeya_ops.engine.grouping import Change, Merge, StepCost, next_change
from kakeya_ops.engine.prefill import Cancelled
from kakeya_ops.engine.sampling import build_processors, build_sampler
from kakeya_ops.errors import KakeyaError

_JOINING_REST = 1
"""Rounds after a newcomer, whose first step is one more for everybody."""
_COPYING_REST = 8
"""Rounds after a change that copied as much KV as a round reads in all; in proportion for less."""

_logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Sequence:
    """One sequence that is decoded or about to be; `cancel` may be called from any thread."""

    request: DecodeRequest
    on_event: OnEvent
    cancelled: bool = False

    def cancel(self) -> None:
        """Leave before the next step."""
        self.cancelled = True


class Decoder:
    """The sequences that are decoded, in their batches. Compute thread only, but for `len`."""

    def __init__(self, model: Any, eos_token_ids: frozenset[int], cost: StepCost) -> None:
        self._model = model
        self._stop = StopSequences([(token,) for token in sorted(eos_token_ids)] or None)
        self._cost = cost
        self._batches: list[GenerationBatch] = []
        self._sequences: dict[int, Sequence] = {}
        self._joining: deque[tuple[Sequence, list[Any]]] = deque()
        self._rest = 0
        self._busy = False
        self._next_uid = 0

    def __len__(self) -> int:
        return len(self._sequences) + len(self._joining)

    @property
    def groups(self) -> list[list[int]]:
        """The length in tokens of every row of every batch."""
        return [[len(tokens) for tokens in batch.tokens] for batch in self._batches]

    def insert(self, sequence: Sequence, cache: list[Any]) -> None:
        """Have `sequence`, whose prompt but for the last token is in `cache`, decoded from one of the next rounds on.

        When it cannot be, its listener is told so.
        """
        self._joining.append((sequence, cache))

    def step(self) -> bool:
        """Decode one token of every sequence; False when there is none."""
        self._drop_cancelled()
        for batch in tuple(self._batches):
            self._advance(batch)
        # Whoever joins now is in the middle of the first step when the next round begins.
        self._rearrange()
        self._tidy()
        return bool(self._sequences)

    def fail_all(self, error: Exception) -> None:
        """End every sequence with `error`."""
        self._batches.clear()
        while self._joining:
            self._joining.popleft()[0].on_event(FailedEvent(error))
        while self._sequences:
            self._sequences.popitem()[1].on_event(FailedEvent(error))

    def _advance(self, batch: GenerationBatch) -> None:
        for response in batch.next():
            sequence = self._sequences[response.uid]
            if response.finish_reason is not None:
                del self._sequences[response.uid]
            sequence.on_event(_describe(response, sequence.request))
        self._drop_empty()

    def _rearrange(self) -> None:
        """One change of the batches, or one newcomer. Nobody who is alone has to rest."""
        self._rest -= 1
        if self._rest >= 0 and self._batches:
            return
        groups = self.groups
        change = next_change(groups, self._cost)
        if change:
            self._rest = self._apply(change, groups)
        elif self._joining:
            self._rest = _JOINING_REST
            self._join(*self._joining.popleft())

    def _apply(self, change: Change, groups: list[list[int]]) -> int:
        """Make `change`; the number of rounds to rest after it."""
        if isinstance(change, Merge):
            copied = [groups[change.first] + groups[change.second]]
            self._batches[change.first].extend(self._batches.pop(change.second))  # type: ignore[no-untyped-call]
        else:
            copied = [groups[change.group]]
            long = [index for index, length in enumerate(groups[change.group]) if length > change.tokens]
            self._batches.append(divide(self._batches[change.group], long))
        copied_bytes = sum(self._cost.group(lengths) - self._cost.group_bytes for lengths in copied)
        return int(_COPYING_REST * copied_bytes / self._cost.total(groups))

    def _join(self, sequence: Sequence, cache: list[Any]) -> None:
        try:
            batch = self._open(sequence.request, cache)
        except Exception as error:
            if not isinstance(error, KakeyaError):
                _logger.exception("a sequence could not join")
            # The frames of its traceback hold the cache, for as long as anybody holds the error.
            sequence.on_event(FailedEvent(error.with_traceback(None)))
            return
        self._sequences[batch.uids[0]] = sequence
        self._batches.append(batch)

    def _open(self, request: DecodeRequest, cache: list[Any]) -> GenerationBatch:
        """A batch of one, its first step under way."""
        uid, self._next_uid = self._next_uid, self._next_uid + 1
        return GenerationBatch(
            self._model,
            uids=[uid],
            inputs=mx.array([request.tokens[-1]]),
            prompt_cache=[batch_of_one(leaf) for leaf in cache],
            tokens=[list(request.tokens[:-1])],
            samplers=[build_sampler(request.sampling)],
            fallback_sampler=greedy_sampler,
            logits_processors=[build_processors(request.sampling)],
            stop_sequences=[self._stop],
            max_tokens=[request.max_tokens],
        )

    def _drop_cancelled(self) -> None:
        for entry in [entry for entry in self._joining if entry[0].cancelled]:
            self._joining.remove(entry)
            entry[0].on_event(FailedEvent(Cancelled()))
        leaving = {uid for uid, sequence in self._sequences.items() if sequence.cancelled}
        for batch in self._batches if leaving else ():
            batch.filter([index for index, uid in enumerate(batch.uids) if uid not in leaving])
        self._drop_empty()
        for uid in leaving:
            self._sequences.pop(uid).on_event(FailedEvent(Cancelled()))

    def _drop_empty(self) -> None:
        self._batches = [batch for batch in self._batches if batch.uids]

    def _tidy(self) -> None:
        """Give MLX's spare buffers back when the last sequence has left."""
        if self._busy and not self._sequences:
            mx.clear_cache()
        self._busy = bool(self._sequences)


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
