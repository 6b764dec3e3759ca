"""Nodes of tests, served on loopback by real servers, and peers that call them."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import numpy as np

from kakeya_ops.errors import KakeyaError
from kakeya_ops.kv.hashing import tenant_key
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.peer.client import PeerClient
from kakeya_ops.peer.connection import Endpoint, Timeouts
from kakeya_ops.peer.signed import Caller
from kakeya_ops.secret import Secret
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.serving.peer_app import make_peer_app
from kakeya_ops.serving.prompts import Naming, Prompt
from kakeya_ops.serving.server import Server, Site, address_of, bind
from kakeya_ops.serving.tls_protocol import TlsDoor
from kakeya_ops.units import BlockHash, NodeId
from kakeya_ops.wire.cards import Endpoint as CardEndpoint
from kakeya_ops.wire.signing import NodeSigner, new_nonce

KEY = Secret(b"a key for tests, thirty-two bytes")
TENANT = "tests"
DEADLINE_SECONDS = 20.0
TIMEOUTS = Timeouts(connect_seconds=5.0, reply_seconds=10.0, silence_seconds=10.0)


def simple_layout(row_bytes: int = 64, block_tokens: int = 16) -> KvLayout:
    """A layout with a part that needs every block and one that needs the last 32 tokens."""
    shape = (1, block_tokens, row_bytes // 4)
    arrays = tuple(ArrayLayout(0, slot, "float32", shape) for slot in ("keys", "values"))
    windowed = tuple(ArrayLayout(1, slot, "float32", shape) for slot in ("keys", "values"))
    parts = (PartLayout("full", arrays), PartLayout("window", windowed, window=32))
    return KvLayout(block_tokens, ("KVCache", "RotatingKVCache"), parts)


def simple_identity(layout: KvLayout | None = None, *, weights: str = "11" * 32) -> CacheIdentity:
    """The identity of a model that does not exist."""
    return CacheIdentity(
        model_type="simple",
        weights=weights,
        quantization=None,
        geometry={"layers": 2},
        rope={},
        kv_dtype="float32",
        block_tokens=(layout or simple_layout()).block_tokens,
        sink=0,
        window=None,
        layout=layout or simple_layout(),
        tokenizer="22" * 32,
        chat_template="33" * 32,
    )


def block_hash(index: int) -> BlockHash:
    """A hash that no other index has."""
    return BlockHash(index.to_bytes(32, "big"))


def payload(layout: KvLayout, part: int, seed: int) -> StoredPart:
    """Bytes of the right length for `part`, the same for the same `seed`."""
    return StoredPart.of(random.Random(seed * 31 + part).randbytes(layout.parts[part].nbytes))


def floats(layout: KvLayout, part: int, seed: int) -> StoredPart:
    """The same as `payload`, of numbers as a model's KV has them: these can be packed."""
    numbers = np.random.default_rng(seed * 31 + part).standard_normal(layout.parts[part].nbytes // 4)
    return StoredPart.of(numbers.astype(np.float32).tobytes())


def fill(
    pool: BlockPool,
    layout: KvLayout,
    hashes: Sequence[BlockHash],
    make: Callable[[KvLayout, int, int], StoredPart] = payload,
) -> None:
    """Keep every part of every block, each with what `make` gives."""
    for index, hash in enumerate(hashes):
        for part in range(len(layout.parts)):
            assert pool.put(PartKey(hash, part), make(layout, part, index))


def make_caller(name: str = "head", key: Secret | None = KEY, epoch: int = 1) -> Caller:
    """A peer that calls."""
    node = NodeId(name)
    return Caller(node, epoch, new_nonce(), NodeSigner(node, key, TENANT, time.time), key)


def make_cache(name: str = "cache", *, keys: Sequence[Secret] = (KEY,), identity: CacheIdentity | None = None) -> Node:
    """A cache peer with a pool of 16 MiB."""
    settings = NodeSettings(NodeId(name), "cache", TENANT, keys)
    return Node(settings, BlockPool(16 * 2**20), identity or simple_identity())


def hash_prompt(identity: CacheIdentity, tokens: tuple[int, ...], tenant: str = TENANT) -> Prompt:
    """A prompt as nodes with `KEY` see it."""
    return Prompt.hash("request", tenant, tokens, Naming(identity.layout, identity.digest, tenant_key(KEY, tenant)))


class Served:
    """`node` on a port of its own, in a thread, within a ``with``."""

    def __init__(self, node: Node, tls: TlsDoor | None = None) -> None:
        self.node = node
        self._listener = bind("127.0.0.1", 0)
        self.port = address_of(self._listener)[1]
        self._server = Server([Site("peers", make_peer_app(node), [self._listener], tls=tls)], drain_seconds=5)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served")
        self._clients: list[PeerClient] = []
        self.error: KakeyaError | None = None

    def _run(self) -> None:
        try:
            self._server.run(self._ready.set)
        except KakeyaError as error:
            self.error = error

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(DEADLINE_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            client.close()
        self.stop()

    @property
    def listeners(self) -> tuple[socket.socket, ...]:
        """The sockets that take connections."""
        return (self._listener,)

    def stop(self) -> None:
        """Stop serving; what is being answered may end."""
        self._server.stop()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def client(
        self, caller: Caller | None = None, *, port: int | None = None, timeouts: Timeouts = TIMEOUTS
    ) -> PeerClient:
        """A client of it, closed at the end; `port` is that of a proxy in between."""
        endpoint = Endpoint("127.0.0.1", port or self.port)
        layout = self.node.identity.layout
        self._clients.append(PeerClient(self.node.id, endpoint, caller or make_caller(), layout, timeouts))
        return self._clients[-1]


def card_endpoint(port: int) -> CardEndpoint:
    """An endpoint on loopback as a card names it."""
    return CardEndpoint(network="loopback", address="127.0.0.1", port=port, trusted=True)


__all__ = [
    "DEADLINE_SECONDS",
    "KEY",
    "TENANT",
    "TIMEOUTS",
    "Served",
    "block_hash",
    "card_endpoint",
    "fill",
    "floats",
    "hash_prompt",
    "make_cache",
    "make_caller",
    "payload",
    "simple_identity",
    "simple_layout",
]
