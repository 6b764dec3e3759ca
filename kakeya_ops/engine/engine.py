"""One model on one compute thread: import, prefill, export and decode for the head and the worker alike."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import mlx.core as mx

from kakeya_ops.engine.admission import Admitted
from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.engine.batches import shared_weights_bytes
from kakeya_ops.engine.compute import ComputeThread
from kakeya_ops.engine.contract import (
    BlockSink,
    CacheSettings,
    DecodeEvent,
    DecodeRequest,
    FailedEvent,
    Heartbeat,
    MemoryUse,
    OnEvent,
    PrefillEvent,
    Ticket,
)
from kakeya_ops.engine.decode import Decoder, Sequence
from kakeya_ops.engine.grouping import StepCost
from kakeya_ops.engine.identify import load_weights, make_identity, read_runtime, read_tokenizer, trying
from kakeya_ops.engine.layout_probe import probe_layout
from kakeya_ops.engine.leaves import make_cache
from kakeya_ops.engine.pace import Pace
from kakeya_ops.engine.prefill import PrefillJob, PrefillQueue, PrefillTask
from kakeya_ops.engine.rate import PrefillRate
from kakeya_ops.engine.text import TextDoor
from kakeya_ops.engine.trial import try_decoding_together
from kakeya_ops.errors import EngineDead, InputError
from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import StoredPart
from kakeya_ops.model.directory import ModelDirectory

P = ParamSpec("P")
T = TypeVar("T")

_logger = logging.getLogger(__name__)


_ALLOCATED_BYTES = 64 * 2**20
"""Between two decode steps: some ten milliseconds on a CPU."""
_MEASURED_BLOCKS = 3
_MEASURING_SECONDS = 2.0


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory and everything about it that does not change."""

    model: Any
    text: TextDoor
    identity: CacheIdentity
    runtime: Runtime
    context_tokens: int | None
    vocabulary_size: int


@dataclass(frozen=True)
class Admission:
    """`queue_limit` bounds the prompts that are or wait to be prefilled; `together` of them take turns."""

    queue_limit: int = 16
    together: int = 1


class Engine:
    """Safe to call from any thread, but not from a listener. Every method but `load`, `open_import`, `call` and `close`
    returns at once.

    Listeners are called on the compute thread. One that raises ends its own request and nothing else.
    """

    def __init__(
        self, loaded: LoadedModel, thread: ComputeThread, settings: CacheSettings, admission: Admission
    ) -> None:
        self.identity = loaded.identity
        self.runtime = loaded.runtime
        self.text = loaded.text
        self.context_tokens = loaded.context_tokens
        self.vocabulary_size = loaded.vocabulary_size
        self.settings = settings
        self._model = loaded.model
        self._thread = thread
        self._dead = False
        self._on_death: Callable[[], None] = lambda: None
        self.check_admission: Callable[[], None] = lambda: None
        """Raises `EngineBusy` where a prompt must not be admitted for reasons outside of the engine."""
        self._prefills = PrefillQueue(loaded.model, self.layout, settings, together=admission.together)
        self._admitted = Admitted(admission.queue_limit, self._prefills.rate)
        cost = StepCost.of_layout(self.layout, shared_weights_bytes(loaded.model))
        self._decoder = Decoder(loaded.model, frozenset(loaded.text.eos_token_ids), cost)
        pace = Pace(self._decoder, self._prefills)
        thread.begin((pace.decode, pace.prefill), self._test, self._end)

    @classmethod
    def load(cls, path: Path, settings: CacheSettings, admission: Admission = Admission()) -> Engine:
        """Load the model in `path` on a compute thread of its own. Blocks until it is in memory and its speed measured.

        Raises `ModelDirectoryError` or `UnsupportedModel`.
        """
        thread = ComputeThread("compute")
        try:
            loaded = thread.call(lambda: _load(path, settings)).result()
        except BaseException:
            thread.close()
            raise
        engine = cls(loaded, thread, settings, admission)
        engine._measure()
        return engine

    @property
    def layout(self) -> KvLayout:
        """The layout of this model's KV."""
        return self.identity.layout

    @property
    def measured(self) -> PrefillRate:
        """The prefill speed of whole chunks on this machine, as it was measured while serving."""
        return self._prefills.rate

    @property
    def decoding(self) -> int:
        """How many sequences are being decoded."""
        return len(self._decoder)

    @property
    def queued(self) -> int:
        """How many prompts are being prefilled or wait for it."""
        return len(self._admitted)

    def queue_seconds(self) -> float:
        """Estimated seconds until a prompt that came now would be begun; 0 when nothing was measured yet."""
        return self._admitted.queue_seconds()

    def open_import(self, blocks: int) -> Assembly:
        """Buffers for a resume after `blocks` blocks. Blocks for the moments the compute thread needs to make them.

        They are made some at a time, between steps of those who decode.
        """
        assembly = self.call(lambda: Assembly(self.layout, blocks, allocated=False))
        while not self.call(lambda: assembly.allocate(_ALLOCATED_BYTES)):
            pass
        return assembly

    def prefill(self, job: PrefillJob) -> Ticket:
        """Queue `job`.

        Raises `EngineBusy` when the queue is full, `EngineDead`, or `InputError` for tokens that are not the model's or
        too few.
        """
        end = job.to_block * self.layout.block_tokens
        self._check(job.tokens, job.prefix, end)

        def done(error: Exception | None) -> None:
            if self._admitted.leave(task):
                _tell(job.on_done, error)

        task = PrefillTask(
            tokens=job.tokens,
            end=end,
            on_ready=lambda cache: done(None),
            on_failed=done,
            on_block=job.on_block,
            prefix=job.prefix,
            keep_states=job.keep_states,
            background=job.background,
        )
        self._admit(task)
        return task

    def decode(
        self,
        request: DecodeRequest,
        on_event: OnEvent,
        *,
        prefix: Assembly | None = None,
        on_block: BlockSink | None = None,
    ) -> Ticket:
        """Prefill what `prefix` lacks of `request`'s prompt, then decode.

        The events end with a `TokenEvent` that has a `finish`, or with a `FailedEvent`, also after `cancel`.
        `on_block` is given every whole block that is computed here; when it fails, the request goes on without it.
        Raises `EngineBusy` when the queue is full, `EngineDead`, or `InputError` for tokens that are not the model's.
        """
        total = len(request.tokens) - 1
        self._check(request.tokens, prefix, total)
        self._check_range(request.sampling.logit_bias)
        running = _Running(request, on_event)

        def ready(cache: list[Any]) -> None:
            self._decoder.insert(running.sequence, cache)
            self._admitted.leave(task)

        def failed(error: Exception) -> None:
            if self._admitted.leave(task):
                running.emit(FailedEvent(error))

        task = running.task = PrefillTask(
            tokens=request.tokens,
            end=total,
            on_ready=ready,
            on_failed=failed,
            on_block=_forgiving(on_block),
            on_progress=lambda done: running.emit(PrefillEvent(done, total)),
            prefix=prefix,
        )
        self._admit(task)
        return running

    def heartbeat(self) -> Heartbeat:
        """The compute thread's state, without waiting for it."""
        return self._thread.heartbeat()

    def memory(self) -> MemoryUse:
        """What MLX holds in this process, without waiting for the compute thread."""
        return MemoryUse(mx.get_active_memory(), mx.get_peak_memory())

    def release_spare(self) -> None:
        """Have MLX give buffers back that it keeps for later, at the next round; does not wait for it."""
        with contextlib.suppress(EngineDead):
            self._thread.call(mx.clear_cache)

    def on_death(self, notify: Callable[[], None]) -> None:
        """Have `notify` called, on the dying thread, if the compute thread ever fails; at once if it has failed."""
        self._on_death = notify
        if self._dead:
            notify()

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` on the compute thread between two steps and return its result."""
        future: Future[T] = self._thread.call(work)
        return future.result()

    def close(self) -> None:
        """Stop after the present step. What is unfinished fails with `EngineDead`."""
        self._thread.close()

    def _check(self, tokens: tuple[int, ...], prefix: Assembly | None, end: int) -> None:
        """Nothing below looks: MLX reads whatever lies beyond an array's end."""
        if not 0 <= end <= len(tokens):
            raise InputError(f"{end} tokens were to be prefilled of a prompt of {len(tokens)}")
        if prefix and prefix.tokens > end:
            raise InputError(f"a prefix of {prefix.tokens} tokens is longer than the {end} that may be resumed after")
        self._check_range(tokens)

    def _check_range(self, tokens: Collection[int]) -> None:
        if tokens and not 0 <= min(tokens) <= max(tokens) < self.vocabulary_size:
            raise InputError(f"a token is outside the model's vocabulary of {self.vocabulary_size}")

    def _admit(self, task: PrefillTask) -> None:
        self.check_admission()
        self._admitted.enter(task)
        try:
            self._thread.call(lambda: self._prefills.add(task))
        except EngineDead:
            # Otherwise the end of the thread has come between and told the listener.
            if self._admitted.leave(task):
                raise

    def _measure(self) -> None:
        """Prefill a few blocks, or as many as a moment allows, so that the first request finds a measured speed."""
        done = threading.Event()
        tokens = (0,) * (_MEASURED_BLOCKS * self.layout.block_tokens)
        ticket = self.prefill(PrefillJob(tokens, _MEASURED_BLOCKS, lambda block, parts: None, lambda error: done.set()))
        if not done.wait(_MEASURING_SECONDS):
            ticket.cancel()
            done.wait()

    def _test(self) -> None:
        """Compute one token with an empty cache, as a request would, and let spare memory go."""
        mx.eval(self._model(mx.zeros((1, 1), mx.int32), cache=make_cache(self._model, self.settings)))
        mx.clear_cache()

    def _end(self, cause: BaseException | None) -> None:
        """Tell everybody, also those whose call the thread did not come to."""
        error = EngineDead(f"the compute thread failed: {cause}" if cause else "the engine was closed")
        self._prefills.clear()
        for task in self._admitted.present():
            task.fail(error)
        self._decoder.fail_all(error)
        if cause:
            self._dead = True
            _tell(self._on_death)


class _Running:
    """A request on its way through prefill and decode. A listener that fails only ends its own request."""

    def __init__(self, request: DecodeRequest, on_event: OnEvent) -> None:
        self._on_event = on_event
        self.sequence = Sequence(request, self.emit)
        self.task: PrefillTask | None = None

    def cancel(self) -> None:
        self.sequence.cancel()
        if self.task:
            self.task.cancel()

    def emit(self, event: DecodeEvent) -> None:
        if not _tell(self._on_event, event):
            self.cancel()


def _forgiving(sink: BlockSink | None) -> BlockSink | None:
    """`sink`, given up after its first failure: an answer never depends on whether its KV could be kept."""
    if sink is None:
        return None
    working = True

    def keep(block: int, parts: tuple[StoredPart | None, ...]) -> None:
        nonlocal working
        working = working and _tell(sink, block, parts)

    return keep


def _tell(listener: Callable[P, None], *event: P.args, **named: P.kwargs) -> bool:
    """Call `listener`; False, and a line in the log, when it raises: what it does wrong is not the engine's to bear."""
    try:
        listener(*event, **named)
    except Exception:
        _logger.exception("a listener failed")
        return False
    return True


def _load(path: Path, settings: CacheSettings) -> LoadedModel:
    _set_up_device()
    directory = ModelDirectory.open(path)
    model, config = load_weights(directory)
    with trying("decoding", directory):
        try_decoding_together(model, settings)
    text = TextDoor(read_tokenizer(directory, config))
    with trying("probing the KV layout", directory):
        identity = make_identity(directory, probe_layout(model, settings), settings)
        vocabulary_size = model(mx.zeros((1, 1), mx.int32)).shape[-1]
    return LoadedModel(model, text, identity, read_runtime(), directory.context_tokens(), vocabulary_size)


def _set_up_device() -> None:
    if mx.default_device().type == mx.DeviceType.gpu:
        mx.set_wired_limit(int(mx.device_info()["max_recommended_working_set_size"]))
    else:
        # The CPU backend would call a C++ compiler, where there is one, in the middle of the first requests.
        mx.disable_compile()


__all__ = ["Admission", "Engine", "LoadedModel"]
