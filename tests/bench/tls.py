"""Measures what TLS costs a stream of blocks: its transfer rate over that of the same stream in clear, over loopback.

    python tests/bench/tls.py [--rounds N] [--megabytes N]

Server and client are the real ones, each in a process of its own; both sides of a ratio run one right after the other.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from results import Measure, render_table

from kakeya_ops.certificates.authority import parse_authority
from kakeya_ops.kv.pool import BlockPool
from kakeya_ops.peer.client import PeerClient, WantedBlock
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.serving.node import Node, NodeSettings
from kakeya_ops.units import NodeId
from serving.running import (
    KEY,
    TENANT,
    TIMEOUTS,
    Served,
    block_hash,
    fill,
    make_caller,
    simple_identity,
    simple_layout,
)
from trust import AUTHORITY, NOW, TlsEndpoint, certificates, tls_served

LAYOUT = simple_layout(row_bytes=64 * 1024, block_tokens=16)
"""A part of 2 MiB, as a real model's are."""
_PART_BYTES = LAYOUT.parts[0].nbytes


def serve(blocks: int, authority: bytes, way: Connection) -> None:
    """Serve the blocks in clear and by TLS until told to stop; the ports are the first word."""
    issuer = parse_authority(authority)
    node = Node(
        NodeSettings(NodeId("cache"), "cache", TENANT, (KEY,)),
        BlockPool(4 * blocks * _PART_BYTES),
        simple_identity(LAYOUT),
    )
    fill(node.pool, LAYOUT, [block_hash(i) for i in range(blocks)])
    with Served(node) as clear, tls_served(node, certificates("cache", issuer=issuer, accepted=[issuer])) as secured:
        way.send((clear.port, secured.port))
        way.recv()


def seconds(client: PeerClient, blocks: int) -> float:
    """How long one part of every block takes."""
    wanted = [WantedBlock(i, 0, block_hash(i)) for i in range(blocks)]
    began = time.perf_counter()
    report = client.fetch(simple_identity(LAYOUT).digest, wanted, lambda arrival: None)
    assert report.parts == blocks
    return time.perf_counter() - began


def measure(rounds: int, megabytes: int) -> Measure:
    """The rates in MB/s, by TLS and in clear."""
    blocks = max(megabytes * 10**6 // _PART_BYTES, 1)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(blocks, AUTHORITY.file, there))
    server.start()
    clear_port, tls_port = here.recv()
    size = blocks * _PART_BYTES / 10**6
    found = Measure("blocks by TLS, to blocks in clear", "MB/s", "at least", 0.0)
    local = _Local(clear_port, tls_port)
    try:
        for _ in range(rounds):
            found.add(size / seconds(local.tls, blocks), size / seconds(local.clear, blocks))
    finally:
        local.close()
        here.send(None)
        server.join()
    return found


class _Local:
    """Clients of the two ports."""

    def __init__(self, clear_port: int, tls_port: int) -> None:
        caller = replace(make_caller(), certificates=certificates("head", now=NOW))
        ends = Endpoint("127.0.0.1", clear_port), TlsEndpoint("127.0.0.1", tls_port)
        self.clear, self.tls = (PeerClient(NodeId("cache"), end, caller, LAYOUT, TIMEOUTS) for end in ends)

    def close(self) -> None:
        """Close the connections."""
        self.clear.close()
        self.tls.close()


def main() -> int:
    """Run the rounds; 0 whatever came out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=int, default=128)
    options = parser.parse_args()
    print(render_table([measure(options.rounds, options.megabytes)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
