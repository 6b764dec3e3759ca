from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from kakeya_ops.errors import EngineDead
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.peer.connection import DEFAULT_TIMEOUTS
from kakeya_ops.serving import job_stream
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.job import Job, JobEnd, ReadyPart, Subscription, Wish
from kakeya_ops.serving.job_stream import Bell, JobStream
from kakeya_ops.serving.node import Health
from kakeya_ops.units import NodeId
from kakeya_ops.wire.bodies import ErrorBody, PrefillRequest, Progress, StreamHeader, WorkerReceipt
from kakeya_ops.wire.frames import FrameReader, FrameType, stream_key
from kakeya_ops.wire.signing import Caller
from serving.running import KEY, hash_prompt, make_cache, payload

NODE = make_cache("worker")
PROMPT = hash_prompt(NODE.identity, tuple(range(64)))
CALLER = Caller(NodeId("head"), "tests", "0" * 32, KEY)
REQUEST = PrefillRequest(
    identity=NODE.identity.digest,
    tenant="tests",
    tokens=PROMPT.tokens,
    from_blocks=0,
    blocks=3,
    nonce="1" * 32,
    request_id="r",
)


class Scripted(Subscription):
    """A subscription that has what a test gives it."""

    def __init__(self, items: Sequence[ReadyPart | JobEnd | None]) -> None:
        super().__init__(Job(PROMPT, 3, resume_blocks=1, done_blocks=3), Wish(PROMPT, 0, 3), lambda: None, self)
        self.items = list(items)
        self.closed = 0
        self.lock = threading.Lock()

    def take(self) -> ReadyPart | JobEnd | None:
        return self.items.pop(0)

    def progress(self, job: Job | None = None) -> Progress:
        return Progress(stage="computing", done_blocks=1, blocks=3)

    def leave(self, job: Job, subscription: Subscription) -> None:
        self.closed += 1


def part(block: int) -> ReadyPart:
    return ReadyPart(block, PROMPT.key(block, 0), payload(NODE.identity.layout, 0, block))


def stream(*items: ReadyPart | JobEnd | None) -> list[tuple[FrameType, bytes]]:
    """The checked frames of a stream of `items`."""
    reader = FrameReader(stream_key(KEY, "down", CALLER.nonce), NODE.identity.layout, hashes=PROMPT.hashes)

    async def collect() -> list[tuple[FrameType, bytes]]:
        source, bell = JobStream(NODE, CALLER, REQUEST), Bell()
        bell.ring()
        frames = []
        async for fields, body in source.frames(Scripted(items), bell):
            bell.ring()
            head = reader.parse_head(fields)
            reader.check(head, body)
            frames.append((head.type, bytes(body)))
        return frames

    return asyncio.run(collect())


def test_blocks_then_the_receipt_of_exactly_these_then_the_end() -> None:
    frames = stream(part(0), part(1), JobEnd(None))
    assert [type.name for type, _ in frames] == ["HEADER", "BLOCK", "BLOCK", "RECEIPT", "END"]
    header, receipt = StreamHeader.parse(frames[0][1]), WorkerReceipt.parse(frames[-2][1])
    assert (header.node, header.blocks, header.job) == ("worker", 3, receipt.job)
    receipt.verify([KEY])
    assert receipt.request_nonce == REQUEST.nonce
    assert (receipt.computed_tokens, receipt.pool_tokens) == (32, 16)
    assert receipt.payload_bytes == 2 * NODE.identity.layout.parts[0].nbytes
    assert receipt.blocks_digest == blocks_digest((b, 0, part(b).stored.checksum) for b in (0, 1))


def test_progress_is_told_while_there_is_nothing_to_send() -> None:
    frames = stream(None, part(0), None, None, JobEnd(None))
    assert [type.name for type, _ in frames] == ["HEADER", "PROGRESS", "BLOCK", "PROGRESS", "RECEIPT", "END"]


def test_an_engine_that_does_not_move_ends_the_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NODE, "health", lambda: Health(False, "the compute thread has not moved for 61 s"))
    frames = stream(part(0), None, None)
    assert [type.name for type, _ in frames] == ["HEADER", "BLOCK", "ERROR"]
    error = ErrorBody.parse(frames[-1][1])
    assert (error.code, error.message) == ("engine_dead", "the compute thread has not moved for 61 s")


def test_silence_is_bounded() -> None:
    async def wait() -> None:
        await Bell().wait(0.01)

    asyncio.run(wait())
    assert DEFAULT_TIMEOUTS.silence_seconds / 5 > job_stream.PROGRESS_SECONDS


def test_an_error_is_told_after_the_blocks_that_were_ready() -> None:
    frames = stream(part(0), JobEnd(EngineDead("the compute thread failed")))
    assert [type.name for type, _ in frames] == ["HEADER", "BLOCK", "ERROR"]
    assert ErrorBody.parse(frames[-1][1]).code == "engine_dead"


def test_a_bug_is_told_without_its_details() -> None:
    frames = stream(JobEnd(ValueError("/secret/path")))
    error = ErrorBody.parse(frames[-1][1])
    assert error.code == "internal"
    assert "secret" not in error.message


def test_bytes_are_counted_as_they_are_sent() -> None:
    node = make_cache("worker")
    sent: list[float] = []

    async def run() -> None:
        async for _ in JobStream(node, CALLER, REQUEST).frames(Scripted([part(0), JobEnd(None)]), Bell()):
            sent.append(node.counters.value(CounterName.BYTES_SENT))

    asyncio.run(run())
    nbytes = node.identity.layout.parts[0].nbytes
    assert sent[0] == 0
    assert sent[1:] == [nbytes] * (len(sent) - 1)


def test_a_bell_is_heard_from_other_threads_and_harmless_when_nobody_hears() -> None:
    bells: list[Bell] = []

    async def listen() -> None:
        bells.append(Bell())
        thread = threading.Thread(target=bells[0].ring)
        thread.start()
        async with asyncio.timeout(10):
            await bells[0].wait(60)
        thread.join()

    asyncio.run(listen())
    bells[0].ring()
