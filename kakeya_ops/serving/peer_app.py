"""The peer protocol as an app: the same for workers, caches and heads, and a part of it for every node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kakeya_ops.errors import IdentityMismatch, InputError, PoolFull, RefusedError, StreamCorrupt
from kakeya_ops.kv.hashing import tenant_key
from kakeya_ops.kv.pool import Lease, PartKey, StoredPart
from kakeya_ops.kv.prefix import longest_resume
from kakeya_ops.peer.stream import stored
from kakeya_ops.serving.compatibility import find_identity_difference
from kakeya_ops.serving.counters import CONTENT_TYPE, CounterName
from kakeya_ops.serving.door import Answer, Door, TellingVersion, refuse_route, tell_bug, tell_health
from kakeya_ops.serving.fault_door import FaultDoor
from kakeya_ops.serving.faults import end_process
from kakeya_ops.serving.job import Wish
from kakeya_ops.serving.job_stream import Bell, JobStream
from kakeya_ops.serving.node import Node
from kakeya_ops.serving.presence import Presence
from kakeya_ops.serving.prompts import Naming, Prompt
from kakeya_ops.serving.streams import Frame, FrameStream, Upload, block_frames_bytes, pack_aside
from kakeya_ops.wire.bodies import FetchRequest, LookupReply, LookupRequest, PrefillRequest, StreamHeader
from kakeya_ops.wire.cards import CardsExchange
from kakeya_ops.wire.drills import Act, DrillRequest, DrillState
from kakeya_ops.wire.frames import HEAD_BYTES, FrameReader, FrameType, FrameWriter, stream_key
from kakeya_ops.wire.packing import Packing
from kakeya_ops.wire.paths import (
    BLOCKS_PATH,
    CARD_PATH,
    CARDS_PATH,
    DRILL_PATH,
    FETCH_PATH,
    LOOKUP_PATH,
    PREFILL_PATH,
)
from kakeya_ops.wire.signing import Caller

_LAST_WORD_SECONDS = 0.1
"""Between the answer to a drill that ends this process, and that end."""


def make_peer_app(node: Node) -> Starlette:
    """The app that answers `node`'s peers."""
    door = Door(node)
    app = _PeerApp(node, door)
    routes = [
        Route(LOOKUP_PATH, door.small(app.lookup, LookupRequest.limit_bytes), methods=["POST"]),
        Route(FETCH_PATH, door.small(app.fetch, FetchRequest.limit_bytes), methods=["POST"]),
        Route(PREFILL_PATH, door.small(app.prefill, PrefillRequest.limit_bytes), methods=["POST"]),
        Route(BLOCKS_PATH, door.streamed(app.store), methods=["PUT"]),
    ]
    return make_node_app(node, door, routes)


def make_node_app(node: Presence, door: Door, routes: Sequence[Route]) -> Starlette:
    """The app of any node: its health, metrics and card, and the exchange of cards; `routes` are what it has beyond."""
    app = _NodeApp(node, door)
    every = [
        Route("/healthz", app.health, methods=["GET"]),
        Route("/metrics", app.metrics, methods=["GET"]),
        Route(CARD_PATH, door.small(app.card), methods=["GET"]),
        Route(CARDS_PATH, door.small(app.exchange, CardsExchange.limit_bytes), methods=["POST"]),
        Route(DRILL_PATH, door.small(app.drill, DrillRequest.limit_bytes), methods=["POST"]),
    ]
    # Where no drill may be there is nothing in between, not even a question.
    faults = [Middleware(FaultDoor, node=node)] if node.settings.drill and isinstance(node, Node) else []
    handlers = {HTTPException: refuse_route, Exception: tell_bug}
    middleware = [Middleware(TellingVersion), *faults]
    return Starlette(routes=[*every, *routes], exception_handlers=handlers, middleware=middleware)


class _NodeApp:
    def __init__(self, node: Presence, door: Door) -> None:
        self._node = node
        self._door = door

    async def health(self, request: Request) -> Response:
        return tell_health(self._node)

    async def metrics(self, request: Request) -> Response:
        """Open to all; Prometheus' text format."""
        return Response(self._node.counters.render(), media_type=CONTENT_TYPE)

    async def card(self, caller: Caller, body: bytes) -> Answer:
        return self._door.reply(caller, self._node.card().encode())

    async def exchange(self, caller: Caller, body: bytes) -> Answer:
        self._node.learn(CardsExchange.parse(body))
        known = tuple(self._node.cards.fresh().values())
        return self._door.reply(caller, CardsExchange(cards=known).encode())

    async def drill(self, caller: Caller, body: bytes) -> Answer:
        """Arm or disarm a drill's fault."""
        fault, faults = DrillRequest.parse(body).fault, self._node.faults
        faults.check()
        met = faults.disarm()
        if fault is not None:
            faults.arm(fault)
        if fault is not None and fault.on == "now" and fault.act is Act.EXIT:
            asyncio.get_running_loop().call_later(_LAST_WORD_SECONDS, end_process)
        state = DrillState(
            node=self._node.id,
            instance=self._node.instance,
            revived=faults.revived,
            armed=None if fault is None else fault.act,
            met=met,
        )
        return self._door.reply(caller, state.encode())


class _PeerApp:
    def __init__(self, node: Node, door: Door) -> None:
        self._node = node
        self._door = door

    async def lookup(self, caller: Caller, body: bytes) -> Answer:
        request = LookupRequest.parse(body)
        self._check_identity(caller, request.identity)
        reply = await run_in_threadpool(self._look_up, request)
        self._node.counters.add(CounterName.LOOKUPS)
        return self._door.reply(caller, reply.encode())

    async def fetch(self, caller: Caller, body: bytes) -> Answer:
        request = FetchRequest.parse(body)
        self._check_identity(caller, request.identity)
        layout, keys = self._node.identity.layout, request.keys
        lease = self._node.pool.pin(key for key in keys if key.part < len(layout.parts))
        self._node.pool.promote(lease.parts)
        header = self._header().encode()
        # What is packed on the way has no length that could be told before.
        length = None if request.packing else 2 * HEAD_BYTES + len(header) + block_frames_bytes(keys, lease.parts)
        frames = self._fetched(caller, header, request, lease)
        self._node.counters.add(CounterName.FETCHES)
        self._node.counters.add(CounterName.BYTES_SENT, sum(part.nbytes for part in lease.parts.values()))
        return FrameStream(frames, lease.release, length)

    async def prefill(self, caller: Caller, body: bytes) -> Answer:
        request = PrefillRequest.parse(body)
        self._check_identity(caller, request.identity)
        jobs = self._node.jobs
        if jobs is None:
            raise RefusedError(f"{self._node.id} is a {self._node.role}: it computes nothing for others")
        bell = Bell()
        wish = await run_in_threadpool(self._wish, caller, request)
        subscription = await run_in_threadpool(jobs.subscribe, wish, bell.ring)
        stream = JobStream(self._node, caller, request)
        return FrameStream(stream.frames(subscription, bell), subscription.close)

    async def store(self, caller: Caller, request: Request) -> Answer:
        """Keep a stream of blocks, visible only when all of it has come."""
        announced = request.headers.get("content-length", "")
        if not announced.isdecimal() or len(announced) > 15:
            raise InputError("a stream of blocks must say its length")
        with self._node.pool.reserve(int(announced)) as reservation:
            parts = await self._receive(caller, request)
            if not reservation.put_all(parts):
                raise PoolFull(sum(part.nbytes for part in parts.values()), self._node.pool.budget_bytes)
        self._node.counters.add(CounterName.BYTES_STORED, sum(part.nbytes for part in parts.values()))
        return self._door.reply(caller, LookupReply(resume_blocks=0, parts_held=len(parts)).encode())

    def _look_up(self, request: LookupRequest) -> LookupReply:
        layout, pool, hashes = self._node.identity.layout, self._node.pool, request.block_hashes
        blocks = longest_resume(layout, hashes, pool.holds, len(hashes))
        # Whoever asks is about to fetch.
        pool.touch_prefix(PartKey(hashes[block], part) for block, part in layout.needed(blocks))
        held = sum(pool.holds(PartKey(hash, part)) for hash in hashes for part in range(len(layout.parts)))
        under_way = self._node.jobs is not None and self._node.jobs.makes(frozenset(hashes[-1:]))
        return LookupReply(resume_blocks=blocks, parts_held=held, under_way=under_way)

    def _wish(self, caller: Caller, request: PrefillRequest) -> Wish:
        identity = self._node.identity
        # The caller's key, not our own: while the fleet's is replaced, the two differ for a time.
        naming = Naming(identity.layout, identity.digest, tenant_key(caller.key, request.tenant))
        prompt = Prompt.hash(request.request_id, request.tenant, request.tokens, naming)
        return Wish(prompt, request.from_blocks, request.blocks, request.background)

    async def _fetched(
        self, caller: Caller, header: bytes, request: FetchRequest, lease: Lease
    ) -> AsyncIterator[Frame]:
        writer = FrameWriter(stream_key(caller.key, "down", caller.nonce))
        packing = Packing(self._node.identity.layout) if request.packing else None
        yield writer.encode(FrameType.HEADER, header)
        for wanted in request.blocks:
            part = lease.parts.get(wanted.key)
            if part is not None:
                packed = await pack_aside(packing, wanted.part, part)
                yield writer.encode_block(wanted.key, wanted.block, part, packed)
        yield writer.encode(FrameType.END)

    async def _receive(self, caller: Caller, request: Request) -> dict[PartKey, StoredPart]:
        """The blocks of an upload; the reservation bounds how many there can be."""
        reader = FrameReader(stream_key(caller.key, "up", caller.nonce), self._node.identity.layout, peer=caller.node)
        parts: dict[PartKey, StoredPart] = {}
        async for head, payload in Upload(reader, request.stream()).frames():
            if head.type is FrameType.HEADER:
                self._check_identity(caller, StreamHeader.parse(bytes(payload)).identity)
            elif head.type is FrameType.BLOCK:
                parts[head.key] = stored(head, payload)
            elif head.type is not FrameType.END:
                raise StreamCorrupt(caller.node, f"sent a {head.type.name} frame instead of blocks")
        return parts

    def _check_identity(self, caller: Caller, digest: str) -> None:
        """Raise `IdentityMismatch`, naming the first difference where the caller's card tells it, unless equal."""
        ours = self._node.identity
        if digest != ours.digest:
            found = find_identity_difference(ours, digest, self._node.cards.card(caller.node))
            raise IdentityMismatch(found.field, found.ours, found.theirs, peer=caller.node)

    def _header(self) -> StreamHeader:
        node = self._node
        return StreamHeader(node=node.id, epoch=node.epoch, instance=node.instance, identity=node.identity.digest)


__all__ = ["make_peer_app"]
