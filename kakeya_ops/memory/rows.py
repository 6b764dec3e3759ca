"""How many rows (tokens) mlx-lm's caches allocate, which is more than they hold.

From ``mlx_lm/models/cache.py`` of mlx-lm 0.32.2, measured equal to it to the byte in the tests of this module:

* ``KVCache`` grows by ``256 * ceil(chunk / 256)`` rows, after cutting the slack off if it was not full to a multiple.
* ``RotatingKVCache`` is ``min(T, W - 1 + chunk)`` rows long after a chunk, and stays so until the next single token,
  which cuts it to ``W``. Kakeya's sink + window cache is one of these with ``W = sink + window``.
* A batch is padded to its longest sequence, has no slack when it is made, and then grows as a ``KVCache`` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kakeya_ops.memory.shape import LayerCache

GROWTH_ROWS = 256


def chunks_of(tokens: int, step: int, singles: int = 0) -> Iterator[int]:
    """The chunks in which `tokens` are computed, `step` at a time, and then `singles` one by one."""
    yield from (min(step, tokens - begun) for begun in range(0, tokens, step))
    yield from (1 for _ in range(singles))


def full_rows(tokens: int, step: int, singles: int = 0) -> int:
    """Rows of a cache that keeps everything, after `tokens` in chunks of `step` and `singles` decoded ones."""
    if GROWTH_ROWS % step == 0:
        return _round_up(tokens + singles)
    rows = offset = 0
    for chunk in chunks_of(tokens, step, singles):
        if offset + chunk > rows:
            rows = (rows if offset % GROWTH_ROWS == 0 else offset) + _round_up(chunk)
        offset += chunk
    return rows


def largest_full_rows(tokens: int, step: int) -> int:
    """The most that `full_rows` is for any number of tokens up to `tokens`."""
    slack = 0 if GROWTH_ROWS % step == 0 or step % GROWTH_ROWS == 0 else GROWTH_ROWS - 1
    return _round_up(tokens) + slack


def window_rows(tokens: int, window: int, step: int, singles: int = 0) -> int:
    """Rows of a cache that keeps the last `window`, after `tokens` in chunks of `step` and `singles` decoded ones."""
    rows = offset = 0
    for chunk in chunks_of(tokens, step, singles):
        if chunk > 1:
            rows = min(offset, rows, window - 1) + chunk if offset else chunk
        elif offset >= rows and rows < window:
            rows += min(GROWTH_ROWS, window - offset)
        rows = min(rows, window) if chunk == 1 else rows
        offset += chunk
    return rows


def largest_window_rows(tokens: int, window: int, step: int) -> int:
    """The most that `window_rows` is while `tokens` are computed in chunks of `step`."""
    return min(tokens, window - 1 + step)


def batch_rows(tokens: int) -> int:
    """The most rows for each sequence of a batch whose longest one has `tokens`: its last growth began at any row."""
    return tokens + GROWTH_ROWS - 1


def sequence_bytes(layers: Iterable[LayerCache], tokens: int, step: int, singles: int = 0) -> int:
    """Bytes of the whole cache list of one sequence, exactly as its leaves' `nbytes` say.

    `tokens` were computed in chunks of `step`, and `singles` one by one after them. Raises `ValueError` for a chunked
    leaf, whose size depends on when it was last cut.
    """
    return sum(_leaf_bytes(leaf, tokens, step, singles) for leaf in layers)


def _leaf_bytes(leaf: LayerCache, tokens: int, step: int, singles: int) -> int:
    if leaf.kind == "state":
        return leaf.state_bytes
    if leaf.kind == "chunked":
        raise ValueError("a chunked cache has no size of its own")
    if leaf.window is None:
        return leaf.row_bytes * full_rows(tokens, step, singles)
    return leaf.row_bytes * window_rows(tokens, leaf.window, step, singles)


def _round_up(tokens: int) -> int:
    return -(-tokens // GROWTH_ROWS) * GROWTH_ROWS


__all__ = [
    "GROWTH_ROWS",
    "batch_rows",
    "chunks_of",
    "full_rows",
    "largest_full_rows",
    "largest_window_rows",
    "sequence_bytes",
    "window_rows",
]
