"""A prompt's blocks: how many can be resumed after, and what they are called."""

from __future__ import annotations

import pytest

from kakeya_ops.kv.hashing import chain_hashes, tenant_key
from kakeya_ops.serving.prompts import Naming, Prompt
from serving.running import KEY, simple_identity

IDENTITY = simple_identity()
SIZE = IDENTITY.block_tokens


def make(tokens: tuple[int, ...], tenant: str = "a") -> Prompt:
    return Prompt.hash("r", tenant, tokens, Naming(IDENTITY.layout, IDENTITY.digest, tenant_key(KEY, tenant)))


@pytest.mark.parametrize(("length", "blocks"), [(1, 0), (SIZE, 0), (SIZE + 1, 1), (3 * SIZE, 2), (3 * SIZE + 1, 3)])
def test_the_last_token_is_never_part_of_what_is_resumed_after(length: int, blocks: int) -> None:
    assert make(tuple(range(length))).blocks == blocks


def test_blocks_are_named_by_everything_before_them() -> None:
    tokens = tuple(range(4 * SIZE))
    prompt = make(tokens)
    assert prompt.hashes == chain_hashes(tokens, SIZE, IDENTITY.digest, tenant_key(KEY, "a"))
    changed = make((999, *tokens[1:]))
    assert not set(prompt.hashes) & set(changed.hashes)
    longer = make(tokens + tokens)
    assert longer.hashes[:4] == prompt.hashes


def test_tenants_have_names_of_their_own() -> None:
    tokens = tuple(range(2 * SIZE))
    assert not set(make(tokens, "a").hashes) & set(make(tokens, "b").hashes)


def test_a_key_is_a_name_and_a_part() -> None:
    prompt = make(tuple(range(2 * SIZE + 1)))
    assert prompt.key(1, 0) == (prompt.hashes[1], 0)
    with pytest.raises(IndexError):
        prompt.key(2, 0)
