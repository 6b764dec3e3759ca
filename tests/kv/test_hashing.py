from __future__ import annotations

import hashlib
import hmac
import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import InputError
from kakeya_ops.kv.hashing import blocks_digest, chain_hashes, content_checksum, tenant_key
from kakeya_ops.secret import Secret

KEY = tenant_key(Secret(bytes(range(32))), "private-fleet")
IDENTITY = "ab" * 32
TOKEN_IDS = st.integers(0, 2**32 - 1)


def reference_hashes(tokens: list[int], block_tokens: int, identity: str, key: Secret) -> list[bytes]:
    """The definition, as slowly as it reads."""
    last = hmac.new(key.reveal(), b"kakeya-chain-1" + bytes.fromhex(identity), hashlib.sha256).digest()
    hashes = []
    for start in range(0, len(tokens) - block_tokens + 1, block_tokens):
        ids = b"".join(struct.pack("<I", token) for token in tokens[start : start + block_tokens])
        last = hmac.new(key.reveal(), last + ids, hashlib.sha256).digest()
        hashes.append(last)
    return hashes


def test_hashes_are_the_same_in_every_process_and_on_every_platform() -> None:
    hashes = chain_hashes([0, 1, 2, 3, 2**32 - 1, 65_536, 256, 7, 9], 4, IDENTITY, KEY)
    assert [value.hex() for value in hashes] == [
        "0103a7758235e617072b95d311bb177544ec7e65077f494ae99cc29f90d2a797",
        "24bdb9d6a5c92dd8e188b4a4801c29b03378d0949216b5c438c092bc168017ea",
    ]


@given(st.lists(TOKEN_IDS, max_size=70), st.integers(1, 20))
def test_hashes_are_what_the_definition_says(tokens: list[int], block_tokens: int) -> None:
    assert list(chain_hashes(tokens, block_tokens, IDENTITY, KEY)) == reference_hashes(
        tokens, block_tokens, IDENTITY, KEY
    )


@given(st.lists(TOKEN_IDS, max_size=70), st.integers(1, 20), st.data())
def test_a_prefix_of_the_tokens_has_a_prefix_of_the_hashes(
    tokens: list[int], block_tokens: int, data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(tokens)))
    whole = chain_hashes(tokens, block_tokens, IDENTITY, KEY)
    assert chain_hashes(tokens[:cut], block_tokens, IDENTITY, KEY) == whole[: cut // block_tokens]


@given(st.lists(TOKEN_IDS, min_size=8, max_size=8), st.integers(0, 7), TOKEN_IDS)
def test_a_changed_token_changes_its_block_and_all_after_it(tokens: list[int], place: int, token: int) -> None:
    changed = [*tokens[:place], token, *tokens[place + 1 :]]
    pairs = zip(chain_hashes(tokens, 2, IDENTITY, KEY), chain_hashes(changed, 2, IDENTITY, KEY), strict=True)
    equal = [ours == theirs for ours, theirs in pairs]
    assert equal == [token == tokens[place] or block < place // 2 for block in range(4)]


def test_tenant_key_and_identity_keep_hashes_apart() -> None:
    fleet = Secret(bytes(32))
    keys = [
        tenant_key(fleet, "one"),
        tenant_key(fleet, "two"),
        tenant_key(Secret(b"x"), "one"),
        tenant_key(None, "one"),
    ]
    hashes = {chain_hashes([1, 2], 1, identity, key) for key in keys for identity in (IDENTITY, "cd" * 32)}
    assert len(hashes) == 8


def test_without_a_fleet_key_all_nodes_still_agree() -> None:
    assert tenant_key(None, "one") == tenant_key(None, "one")


@pytest.mark.parametrize("tokens", [[-1], [2**32], [1.0], ["1"], [None]])
def test_what_is_not_an_unsigned_32_bit_integer_is_refused(tokens: list[int]) -> None:
    with pytest.raises(InputError, match="token"):
        chain_hashes(tokens, 1, IDENTITY, KEY)


def test_bytes_are_a_sequence_of_integers_like_any_other() -> None:
    assert chain_hashes(b"\x01\x02", 1, IDENTITY, KEY) == chain_hashes([1, 2], 1, IDENTITY, KEY)


def test_checksum_is_xxh3_128() -> None:
    assert content_checksum(b"").hex() == "99aa06d3014798d86001c324468d497f"
    assert content_checksum(memoryview(b"kakeya")) == content_checksum(bytearray(b"kakeya"))


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.binary(min_size=16, max_size=16))),
    st.randoms(),
)
def test_digest_of_parts_knows_no_order(parts: list[tuple[int, int, bytes]], shuffler: random.Random) -> None:
    shuffled = parts.copy()
    shuffler.shuffle(shuffled)
    assert blocks_digest(shuffled) == blocks_digest(parts)
    assert blocks_digest([*parts, (0, 0, bytes(16))]) != blocks_digest(parts)


def test_digest_of_parts_is_sha256_of_packed_triples() -> None:
    packed = struct.pack("<II16sII16s", 1, 0, b"a" * 16, 1, 2, b"b" * 16)
    assert blocks_digest([(1, 2, b"b" * 16), (1, 0, b"a" * 16)]) == hashlib.sha256(packed).hexdigest()
