"""Layouts for tests: small ones by hand, and any by hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from kakeya_ops.kv.layout import ITEM_BYTES, ArrayLayout, KvLayout, PartKind, PartLayout

BLOCK_TOKENS = 4
ROWS = (
    ArrayLayout(0, "keys", "float32", (2, BLOCK_TOKENS, 3)),
    ArrayLayout(0, "values", "float16", (2, BLOCK_TOKENS, 3)),
)
STATE = (ArrayLayout(1, "0", "bfloat16", (3, 5)),)

FULL = PartLayout("full", ROWS)
WINDOW = PartLayout("window", ROWS, sink=2, window=6)
RECURRENT = PartLayout("state", STATE)
HYBRID = KvLayout(BLOCK_TOKENS, ("KVCache", "ArraysCache"), (FULL, WINDOW, RECURRENT))


@st.composite
def parts(draw: st.DrawFn) -> PartLayout:
    """Any part, with sink and window where its kind has them."""
    kind: PartKind = draw(st.sampled_from(["full", "window", "state"]))
    arrays = st.builds(
        ArrayLayout,
        leaf=st.integers(0, 3),
        slot=st.sampled_from(["keys", "values", "0"]),
        dtype=st.sampled_from(sorted(ITEM_BYTES)),
        shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    )
    windowed = kind == "window"
    return PartLayout(
        kind,
        tuple(draw(st.lists(arrays, min_size=1, max_size=2))),
        sink=draw(st.integers(0, 12)) if windowed else 0,
        window=draw(st.none() | st.integers(1, 40)) if windowed else None,
    )


layouts = st.builds(
    KvLayout,
    block_tokens=st.integers(1, 8),
    leaves=st.lists(st.sampled_from(["KVCache", "RotatingKVCache"]), max_size=4).map(tuple),
    parts=st.lists(parts(), max_size=3).map(tuple),
)

__all__ = ["BLOCK_TOKENS", "FULL", "HYBRID", "RECURRENT", "ROWS", "STATE", "WINDOW", "layouts", "parts"]
