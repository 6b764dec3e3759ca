from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.kv.identity import CacheIdentity, Runtime
from kv.layouts import HYBRID, layouts

IDENTITY = CacheIdentity(
    model_type="llama",
    weights="11" * 32,
    quantization={"bits": 4, "group_size": 64},
    geometry={"layers": 2, "heads": 4},
    rope={"theta": 10_000.0},
    kv_dtype="bfloat16",
    block_tokens=4,
    sink=4,
    window=None,
    layout=HYBRID,
    tokenizer="22" * 32,
    chat_template="33" * 32,
)
RUNTIME = Runtime("0.32.4", "0.32.2", "cpu", "x86_64", "1")

CHANGED: dict[str, Any] = {
    "model_type": "qwen3",
    "weights": "12" * 32,
    "quantization": None,
    "geometry": {"layers": 3, "heads": 4},
    "rope": {"theta": 20_000.0},
    "kv_dtype": "float16",
    "block_tokens": 8,
    "sink": 0,
    "window": 2048,
    "layout": replace(HYBRID, parts=()),
    "tokenizer": "23" * 32,
    "chat_template": "34" * 32,
    "mask_version": 2,
    "wire_version": 2,
}
ORDER = [field.name for field in fields(CacheIdentity)]

plain = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
)
identities = st.builds(
    CacheIdentity,
    model_type=st.text(max_size=8),
    weights=st.text("0123456789abcdef", min_size=64, max_size=64),
    quantization=st.none() | plain,
    geometry=plain,
    rope=plain,
    kv_dtype=st.sampled_from(["float32", "bfloat16"]),
    block_tokens=st.integers(1, 256),
    sink=st.integers(0, 64),
    window=st.none() | st.integers(1, 4096),
    layout=layouts,
    tokenizer=st.text("0123456789abcdef", min_size=64, max_size=64),
    chat_template=st.text("0123456789abcdef", min_size=64, max_size=64),
)


def test_digest_is_the_same_in_every_process_and_on_every_platform() -> None:
    assert IDENTITY.digest == "e963c929792c6f4e8f9668b990d0af22ed04f60a2b314ed4dc8675fb4ccb7c47"


@pytest.mark.parametrize("name", ORDER)
def test_every_field_changes_the_digest_and_is_named(name: str) -> None:
    other = replace(IDENTITY, **{name: CHANGED[name]})
    assert other.digest != IDENTITY.digest
    assert IDENTITY.first_difference(other) == (name, getattr(IDENTITY, name), CHANGED[name])


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_differences_the_first_in_order_is_named(first: int) -> None:
    other = replace(IDENTITY, **{name: CHANGED[name] for name in reversed(ORDER[first:])})
    difference = IDENTITY.first_difference(other)
    assert difference is not None
    assert difference[0] == ORDER[first]


@pytest.mark.parametrize("theta", [10_000, True])
def test_a_difference_that_python_takes_for_equal_is_named_too(theta: int) -> None:
    ours, theirs = (replace(IDENTITY, rope={"theta": value}) for value in (float(theta), theta))
    assert ours.rope == theirs.rope
    assert ours.digest != theirs.digest
    assert ours.first_difference(theirs) == ("rope", ours.rope, theirs.rope)


@given(identities)
def test_identities_survive_json(identity: CacheIdentity) -> None:
    again = CacheIdentity.from_json(json.loads(json.dumps(identity.to_json())))
    assert again == identity
    assert again.digest == identity.digest
    assert identity.first_difference(again) is None


@given(plain)
def test_order_of_entries_does_not_matter(geometry: dict[str, Any]) -> None:
    turned = dict(reversed(geometry.items()))
    assert replace(IDENTITY, geometry=geometry).digest == replace(IDENTITY, geometry=turned).digest


@pytest.mark.parametrize("name", ORDER)
def test_a_document_that_lacks_a_field_is_refused(name: str) -> None:
    document = IDENTITY.to_json()
    del document[name]
    with pytest.raises(ValueError, match=name):
        CacheIdentity.from_json(document)


def test_a_document_with_another_field_is_refused() -> None:
    with pytest.raises(ValueError, match="tenant"):
        CacheIdentity.from_json(IDENTITY.to_json() | {"tenant": "one"})


def test_runtimes_survive_json_and_name_their_first_difference() -> None:
    assert Runtime.from_json(json.loads(json.dumps(RUNTIME.to_json()))) == RUNTIME
    assert RUNTIME.first_difference(RUNTIME) is None
    other = replace(RUNTIME, threads="2", backend="metal")
    assert RUNTIME.first_difference(other) == ("backend", "cpu", "metal")
    with pytest.raises(TypeError):
        Runtime.from_json({"mlx": "1"})
