"""Import: blocks scattered into preallocated buffers by any thread, then handed to the model without a copy.

The buffers are MLX arrays made and evaluated by the compute thread; network threads write into them through NumPy
views, which holds the GIL only for moments. Turning them into a cache afterwards is a change of type, not a copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kakeya_ops.engine.contract import CacheSettings
from kakeya_ops.engine.leaves import flatten, make_cache
from kakeya_ops.errors import EngineError
from kakeya_ops.kv.layout import ITEM_BYTES, ArrayLayout, KvLayout, PartLayout

_GROWTH_TOKENS = 256
"""mlx-lm grows a `KVCache` in steps of this many rows. There is room for one token more, since to grow is to copy."""
_CARRIER = {4: mx.uint32, 2: mx.uint16}


class Assembly:
    """The KV of the first `blocks` blocks of a prompt, being put together.

    Made by `Engine.open_import`, once `allocate` has said that all is there. `place` may then be called
    from any thread, once per part of a block; two calls for different blocks may run at the same time.
    """

    def __init__(self, layout: KvLayout, blocks: int, *, allocated: bool = True) -> None:
        if blocks < 1:
            raise ValueError(f"a prefix has at least one block, not {blocks}")
        self.layout = layout
        self.blocks = blocks
        self.tokens = blocks * layout.block_tokens
        self._missing = set(layout.needed(blocks))
        self._buffers = {array: self._zeros(part, array) for part in layout.parts for array in part.arrays}
        self._views: dict[ArrayLayout, NDArray[Any]] = {}
        if allocated:
            self.allocate(self.nbytes)

    @property
    def complete(self) -> bool:
        """True when every part that is needed has been placed."""
        return not self._missing

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def allocate(self, most_bytes: int) -> bool:
        """Make the next buffers, at least one and no more than `most_bytes` of them; True when all are there.

        Compute thread only. Fresh memory has to be written to, which takes its time: a second for a few gigabytes.
        """
        nbytes = 0
        for array in [array for array in self._buffers if array not in self._views]:
            buffer = self._buffers[array]
            if nbytes and nbytes + buffer.nbytes > most_bytes:
                return False
            nbytes += buffer.nbytes
            mx.eval(buffer)
            self._views[array] = np.array(buffer, copy=False)
        return True

    def place(self, block: int, part: int, data: bytes | memoryview) -> None:
        """Write the payload of `part` of `block`; one that is not needed, or is there already, is ignored.

        Raises `ValueError` for a payload that is not as long as the layout says.
        """
        if (block, part) not in self._missing:
            return
        described = self.layout.parts[part]
        flat: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        if flat.nbytes != described.nbytes:
            raise ValueError(f"a payload of {flat.nbytes} bytes instead of {described.nbytes}")
        start = 0
        for array in described.arrays:
            self._place_array(block, described, array, flat[start : start + array.nbytes])
            start += array.nbytes
        self._missing.discard((block, part))

    def into_cache(self, model: Any, settings: CacheSettings) -> list[Any]:
        """The cache list that a local prefill of the same tokens would have left. Compute thread only; ends the use of
        this object. Raises `EngineError` when a needed part was never placed.
        """
        if self._missing:
            raise EngineError(f"{len(self._missing)} parts of {self.blocks} blocks were never placed")
        self._views.clear()
        cache = make_cache(model, settings)
        leaves = flatten(cache)
        for part in self.layout.parts:
            for array in part.arrays:
                self._install(leaves[array.leaf], part, array)
        self._buffers.clear()
        return cache

    def _rows(self, part: PartLayout) -> int:
        if part.window is None:
            return (self.tokens // _GROWTH_TOKENS + 1) * _GROWTH_TOKENS
        return min(self.tokens, part.sink + part.window)

    def _zeros(self, part: PartLayout, array: ArrayLayout) -> mx.array:
        carrier = _CARRIER[ITEM_BYTES[array.dtype]]
        if part.kind == "state":
            return mx.zeros((1, *array.shape), carrier)
        heads, _, width = array.shape
        return mx.zeros((1, heads, self._rows(part), width), carrier)

    def _place_array(self, block: int, part: PartLayout, array: ArrayLayout, flat: NDArray[np.uint8]) -> None:
        view = self._views[array]
        source = flat.view(view.dtype).reshape(array.shape)
        if part.kind == "state":
            view[0] = source
            return
        for target, rows in self._spans(block, part):
            view[0, :, target] = source[:, rows]

    def _spans(self, block: int, part: PartLayout) -> Iterator[tuple[slice, slice]]:
        """Where rows of `block` go, as ``(rows of the buffer, rows of the block)``: sinks first, then the window."""
        size = self.layout.block_tokens
        first, last = block * size, (block + 1) * size
        if part.window is None or self.tokens <= part.sink + part.window:
            yield slice(first, last), slice(0, size)
            return
        shift = self.tokens - self._rows(part)
        for low, high, moved in ((0, part.sink, 0), (self.tokens - part.window, self.tokens, shift)):
            start, stop = max(first, low), min(last, high)
            if start < stop:
                yield slice(start - moved, stop - moved), slice(start - first, stop - first)

    def _install(self, leaf: Any, part: PartLayout, array: ArrayLayout) -> None:
        value = self._buffers[array].view(getattr(mx, array.dtype))
        if part.kind == "state":
            leaf.cache[int(array.slot)] = value
            return
        setattr(leaf, array.slot, value)
        leaf.offset = self.tokens
        if part.kind == "window":
            leaf._idx = self._rows(part)


__all__ = ["Assembly"]
