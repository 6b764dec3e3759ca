"""A prompt as the prefill plane sees it: token ids, and the hashes that name its blocks."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.kv.hashing import chain_hashes
from kakeya_ops.kv.layout import KvLayout
from kakeya_ops.kv.pool import PartKey
from kakeya_ops.secret import Secret
from kakeya_ops.units import BlockHash


@dataclass(frozen=True)
class Prompt:
    """`hashes` name every whole block; at most `blocks` of them may be resumed after.

    `tenant` is whose names these are: the client's tenant in the head's present space, see `Quarantine.space`.
    """

    request_id: str
    tenant: str
    tokens: tuple[int, ...]
    hashes: tuple[BlockHash, ...]
    layout: KvLayout

    @classmethod
    def hash(cls, request_id: str, tenant: str, tokens: tuple[int, ...], naming: Naming) -> Prompt:
        """The prompt of one request, its blocks named for `tenant`."""
        layout = naming.layout
        hashes = chain_hashes(tokens, layout.block_tokens, naming.identity_digest, naming.tenant_key)
        return cls(request_id, tenant, tokens, hashes, layout)

    @property
    def blocks(self) -> int:
        """The most blocks that may be resumed after: the last token is always computed alone."""
        return self.layout.resumable_blocks(len(self.tokens))

    def key(self, block: int, part: int) -> PartKey:
        """The pool's key of one payload."""
        return PartKey(self.hashes[block], part)


@dataclass(frozen=True)
class Naming:
    """What block hashes depend on besides the tokens."""

    layout: KvLayout
    identity_digest: str
    tenant_key: Secret


__all__ = ["Naming", "Prompt"]
