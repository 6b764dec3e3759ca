"""A prefill job as the stream that answers its request: blocks as they are made, progress meanwhile, the receipt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import asdict

from kakeya_ops.errors import EngineDead, KakeyaError
from kakeya_ops.kv.hashing import blocks_digest
from kakeya_ops.serving.counters import CounterName
from kakeya_ops.serving.job import JobEnd, ReadyPart, Subscription
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.streams import Frame, pack_aside
from kakeya_ops.wire.bodies import PrefillRequest, StreamHeader, WorkerReceipt
from kakeya_ops.wire.frames import FrameType, FrameWriter, stream_key
from kakeya_ops.wire.packing import Packing
from kakeya_ops.wire.signing import Caller
from kakeya_ops.wire.statuses import describe_error

PROGRESS_SECONDS = 2.0
"""The longest that a stream is silent while its job waits or computes."""


class Bell:
    """Rung from any thread, heard in the event loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake whoever waits, or the next who does."""
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everybody who could hear
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> None:
        """Wait until it is rung, at most `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()


class JobStream:
    """The frames of one request's share of a job."""

    def __init__(self, node: Node, caller: Caller, request: PrefillRequest) -> None:
        self._node = node
        self._caller = caller
        self._request = request
        self._packing = Packing(node.identity.layout) if request.packing else None
        self._writer = FrameWriter(stream_key(caller.key, "down", caller.nonce))
        self._sent: dict[tuple[int, int], bytes] = {}
        self._sent_bytes = 0

    async def frames(self, subscription: Subscription, bell: Bell) -> AsyncIterator[Frame]:
        """Everything from the header to the end.

        A job that fails ends in an ``ERROR`` frame, and so does one whose engine has stopped moving: progress would
        keep the receiver waiting for ever.
        """
        yield self._writer.encode(FrameType.HEADER, self._header(subscription).encode())
        idle = True
        while not isinstance(item := self._next(subscription, idle=idle), JobEnd):
            if item is not None:
                idle = False
                yield await self._block(item)
                continue
            if idle:  # woken, or long silent, and yet there is no block to send
                yield self._writer.encode(FrameType.PROGRESS, subscription.progress().encode())
            await bell.wait(PROGRESS_SECONDS)
            idle = True
        if item.error is None:
            yield self._writer.encode(FrameType.RECEIPT, self._receipt(subscription).encode())
            yield self._writer.encode(FrameType.END)
        else:
            yield self._writer.encode(FrameType.ERROR, _describe(item.error))

    def _next(self, subscription: Subscription, *, idle: bool) -> ReadyPart | JobEnd | None:
        item = subscription.take()
        if item is None and idle and not (health := self._node.health()).healthy:
            return JobEnd(EngineDead(health.reason or "the engine does not answer"))
        return item

    def _header(self, subscription: Subscription) -> StreamHeader:
        return StreamHeader(
            node=self._node.id,
            epoch=self._node.epoch,
            instance=self._node.instance,
            identity=self._node.identity.digest,
            job=subscription.job_id,
            from_blocks=self._request.from_blocks,
            blocks=self._request.blocks,
        )

    async def _block(self, part: ReadyPart) -> Frame:
        self._sent[part.block, part.key.part] = part.stored.checksum
        self._sent_bytes += part.stored.nbytes
        self._node.counters.add(CounterName.BYTES_SENT, part.stored.nbytes)
        packed = await pack_aside(self._packing, part.key.part, part.stored)
        return self._writer.encode_block(part.key, part.block, part.stored, packed)

    def _receipt(self, subscription: Subscription) -> WorkerReceipt:
        receipt = WorkerReceipt(
            **asdict(subscription.account()),
            node=self._node.id,
            epoch=self._node.epoch,
            instance=self._node.instance,
            identity=self._node.identity.digest,
            request_nonce=self._request.nonce,
            prompt_blocks=self._request.blocks,
            from_blocks=self._request.from_blocks,
            blocks_digest=blocks_digest((*place, checksum) for place, checksum in self._sent.items()),
            payload_bytes=self._sent_bytes,
        )
        return receipt.sign(self._caller.key)


def _describe(error: Exception) -> bytes:
    """What the peer is told; details of a failure that is a bug stay in this node's log."""
    known = error if isinstance(error, KakeyaError) else KakeyaError("the job failed in a way it should not")
    return describe_error(known)[1].encode()


__all__ = ["PROGRESS_SECONDS", "Bell", "JobStream"]
