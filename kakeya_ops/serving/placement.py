"""Which peers keep a prefix: weighted rendezvous hashing over those that can, pure and without any state.

Every node that knows the same peers comes to the same answer, and when one joins or leaves only the prefixes move that
it gains or loses. What is placed is a whole chain of blocks, by its root: so one peer holds all of a prefix, one
look-up tells of all of it, and the next turn of a conversation goes where the last one lies.

The root is block 16 of the chain, since what begins alike, by a chat template and a system prompt, must not all be on
one peer; a chain that is shorter is placed by its first block, and so moves at most once while it grows. What chains
with different roots have in common is kept by each of their peers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kakeya_ops.units import BlockHash

ROOT_BLOCKS = 16
"""Chains that agree on so many blocks lie together; with blocks of 64 tokens about a page of text."""


@dataclass(frozen=True)
class Member:
    """A peer that can keep blocks; of two, each is chosen in proportion to its `weight` (above 0)."""

    node: str
    weight: float = 1.0


def root_of(hashes: Sequence[BlockHash]) -> BlockHash:
    """The hash by which a chain is placed. Raises `IndexError` for a chain without blocks."""
    return hashes[ROOT_BLOCKS - 1] if len(hashes) >= ROOT_BLOCKS else hashes[0]


def choose_peers(members: Iterable[Member], root: BlockHash, replicas: int) -> tuple[str, ...]:
    """The `replicas` members that keep what is placed by `root`, best first; all of them where there are fewer.

    The score of a member is ``-weight / ln(u)``, with u in (0, 1) drawn from a hash of root and name (Schindelhauer and
    Schomaker, "Weighted distributed hash tables", 2005): the share of each is its weight's, and no two scores depend on
    each other.
    """
    ranked = sorted(members, key=lambda member: (-_score(member, root), member.node))
    return tuple(member.node for member in ranked[:replicas])


def _score(member: Member, root: BlockHash) -> float:
    drawn = int.from_bytes(hashlib.blake2b(member.node.encode(), key=root[:32], digest_size=6).digest(), "big")
    return -member.weight / math.log((drawn + 1) / (2**48 + 1))


__all__ = ["ROOT_BLOCKS", "Member", "choose_peers", "root_of"]
