"""Names of KV: which tokens a block stands for, and which bytes its payloads have.

A block's hash covers its tokens, all tokens before it, the cache identity and the tenant, and is equal in every process
and on every platform.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import xxhash

from kakeya_ops.errors import InputError
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash

if TYPE_CHECKING:
    from typing_extensions import Buffer

_CHAIN_START = b"kakeya-chain-1"
_TOKEN_BYTES = 4
_UNSIGNED = Secret(b"a fleet without a key")
_BLOCK_ENTRY = struct.Struct("<II16s")


def tenant_key(fleet_key: Secret | None, tenant: str) -> Secret:
    """The key of `tenant`'s block hashes; without a fleet key one that anybody can compute."""
    return (fleet_key or _UNSIGNED).derive(f"tenant:{tenant}")


def chain_hashes(tokens: Sequence[int], block_tokens: int, identity_digest: str, key: Secret) -> tuple[BlockHash, ...]:
    """One hash for each full block of `tokens`; a shorter rest has none.

    With HMAC-SHA-256 under `key` (see `tenant_key`), the chain starts with the hash of ``kakeya-chain-1`` and the 32
    bytes of `identity_digest`; each block's hash is that of the hash before it and of the block's token ids as
    little-endian uint32. Raises `InputError` for a token outside uint32.
    """
    ids = memoryview(_pack_tokens(tokens))
    step = block_tokens * _TOKEN_BYTES
    secret = key.reveal()
    last = hmac.digest(secret, _CHAIN_START + bytes.fromhex(identity_digest), "sha256")
    hashes = []
    for start in range(0, len(ids) - step + 1, step):
        last = hmac.digest(secret, last + ids[start : start + step], "sha256")
        hashes.append(BlockHash(last))
    return tuple(hashes)


def content_checksum(data: Buffer) -> bytes:
    """The xxh3-128 of a contiguous buffer, 16 bytes: finds accidents, not forgery."""
    return xxhash.xxh3_128_digest(data)


def blocks_digest(parts: Iterable[tuple[int, int, bytes]]) -> str:
    """SHA-256, in hexadecimal, of ``(block, part, checksum)`` triples in any order: what a receipt says was carried."""
    return hashlib.sha256(b"".join(_BLOCK_ENTRY.pack(*entry) for entry in sorted(parts))).hexdigest()


def _pack_tokens(tokens: Sequence[int]) -> bytes:
    ids = array("I")
    try:
        ids.extend(tokens)
    except (OverflowError, TypeError) as error:
        raise InputError(f"a token id is not an unsigned 32-bit integer: {error}") from error
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


__all__ = ["blocks_digest", "chain_hashes", "content_checksum", "tenant_key"]
