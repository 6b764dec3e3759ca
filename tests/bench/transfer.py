"""Measures what a prefix takes from one node's pool to another's memory, against a raw TCP socket, and prints ratios.

    python tests/bench/transfer.py [--megabytes N] [--rounds N] [--block-kilobytes N ...] [--link-megabytes N]

One process serves a pool over the peer protocol and plain bytes over TCP, another one receives: into no memory but the
frames' own, and placed in MLX's memory as the head places an import. Both sides of a ratio run one right after the
other. Each process gets a core of its own. `--link-megabytes` holds both to what a link would carry in a second.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from results import Measure, render_table

from kakeya_ops.engine.assembly import Assembly
from kakeya_ops.kv.layout import ArrayLayout, KvLayout, PartLayout
from kakeya_ops.kv.pool import BlockPool, PartKey, StoredPart
from kakeya_ops.peer.client import BlockArrival, PeerClient, WantedBlock
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from serving.running import KEY, TENANT, Served, block_hash, make_caller, simple_identity

_BLOCK_TOKENS = 64
_HEADS = 4
_LAYERS = 8
_MIB = 2**20
_TARGET = 0.8
_MAX_PACING_RATE = 47
"""Linux's SO_MAX_PACING_RATE, bytes per second."""


def layout_of(block_bytes: int) -> KvLayout:
    """Full attention in which a block has about `block_bytes`, spread over the layers."""
    width = max(block_bytes // (2 * _LAYERS * _HEADS * _BLOCK_TOKENS * 4), 1)
    shape = (_HEADS, _BLOCK_TOKENS, width)
    arrays = tuple(
        ArrayLayout(layer, slot, "float32", shape) for layer in range(_LAYERS) for slot in ("keys", "values")
    )
    return KvLayout(_BLOCK_TOKENS, ("KVCache",) * _LAYERS, (PartLayout("full", arrays),))


def serve(pipe: Connection, block_bytes: int, blocks: int, link_bytes: int) -> None:
    """The sending process: a pool that is full, and a plain socket with as many bytes."""
    pin(0)
    layout = layout_of(block_bytes)
    identity = simple_identity(layout)
    part_bytes = layout.parts[0].nbytes
    pool = BlockPool((blocks + 1) * part_bytes)
    random = np.random.default_rng(1)
    for index in range(blocks):
        part = StoredPart.of(random.integers(0, 256, part_bytes, np.uint8).data.toreadonly())
        assert pool.put(PartKey(block_hash(index), 0), part)
    node = Node(NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,)), pool, identity)
    with Served(node) as served, socket.create_server(("127.0.0.1", 0)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _MIB)
        if link_bytes:  # connections inherit it from the socket that they were accepted on
            for listener in (raw, *served.listeners):
                listener.setsockopt(socket.SOL_SOCKET, _MAX_PACING_RATE, struct.pack("Q", link_bytes))
        sending = threading.Thread(target=send_raw, args=(raw, bytes(blocks * part_bytes)), daemon=True)
        sending.start()
        pipe.send((served.port, raw.getsockname()[1]))
        pipe.recv()


def send_raw(listener: socket.socket, data: bytes) -> None:
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(data)


def pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})


class Receiver:
    """The receiving process."""

    def __init__(self, ports: tuple[int, int], block_bytes: int, blocks: int) -> None:
        pin(1)
        self.blocks = blocks
        self.layout = layout_of(block_bytes)
        self.total_bytes = blocks * self.layout.parts[0].nbytes
        self._raw_port = ports[1]
        self._room = np.full(self.total_bytes, 1, np.uint8).data
        self._client = PeerClient(NodeId("cache"), Endpoint("127.0.0.1", ports[0]), make_caller(), self.layout)

    def raw(self) -> float:
        """Bytes per second over a plain connection."""
        with socket.create_connection(("127.0.0.1", self._raw_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * _MIB)
            began, got = time.perf_counter(), 0
            while got < self.total_bytes:
                got += connection.recv_into(self._room[got:])
        return self.total_bytes / (time.perf_counter() - began)

    def fetched(self) -> float:
        """Bytes per second, checked and dropped."""
        return self._fetch(lambda arrival: None)

    def kept(self) -> float:
        """Bytes per second, checked and kept as a pool keeps them."""
        kept: list[StoredPart] = []
        return self._fetch(lambda arrival: kept.append(arrival.stored))

    def placed(self) -> float:
        """Bytes per second, checked, kept, and placed in MLX's memory."""
        assembly = Assembly(self.layout, self.blocks)
        kept: list[StoredPart] = []

        def arrive(arrival: BlockArrival) -> None:
            kept.append(arrival.stored)
            assembly.place(arrival.block, arrival.part, arrival.stored.data)

        rate = self._fetch(arrive)
        assert assembly.complete
        return rate

    def _fetch(self, on_block: Callable[[BlockArrival], None]) -> float:
        wanted = [WantedBlock(index, 0, block_hash(index)) for index in range(self.blocks)]
        began = time.perf_counter()
        report = self._client.fetch(simple_identity(self.layout).digest, wanted, on_block)
        assert report.parts == self.blocks
        return self.total_bytes / (time.perf_counter() - began)


def measure(block_bytes: int, total_bytes: int, rounds: int, link_bytes: int) -> list[Measure]:
    """The lines for blocks of one size."""
    blocks = max(total_bytes // layout_of(block_bytes).parts[0].nbytes, 1)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs, block_bytes, blocks, link_bytes))
    process.start()
    size = f"blocks of {block_bytes // 1024} KiB"
    names = ("fetched", "kept", "placed")
    measures = {name: Measure(f"{size}, {name} ÷ raw TCP", "GB/s", "at least", _TARGET) for name in names}
    try:
        receiver = Receiver(ours.recv(), block_bytes, blocks)
        for name in names:
            getattr(receiver, name)()  # what is done at first use only
        for _ in range(rounds):
            for name, line in measures.items():
                line.add(getattr(receiver, name)() / 1e9, receiver.raw() / 1e9)
    finally:
        ours.send(None)
        process.join(30)
    return list(measures.values())


def main() -> int:
    """Run the rounds; 0 whatever came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--block-kilobytes", type=int, action="append", default=[])
    parser.add_argument("--link-megabytes", type=int, default=0, help="the rate of the link; 0: as fast as it goes")
    options = parser.parse_args()
    lines: list[Measure] = []
    for size in options.block_kilobytes or [64, 2944]:
        lines += measure(size * 1024, options.megabytes * 10**6, options.rounds, options.link_megabytes * 10**6)
    print(render_table(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
