"""How much of its memory a Mac gives to the GPU: as Metal says, as its owner set it, or by the lower public table.

macOS has no documented rule. Two regularities are seen in public reports (docs/memory.md, "Host facts", names one for
each row): an older one, and a higher one in reports of 2026. Where Metal cannot be asked, the lower one is taken.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from kakeya_ops.memory.host import Figure, HostMemory
from kakeya_ops.units import render_bytes

GIB = 2**30
MIB = 2**20
"""The unit of ``iogpu.wired_limit_mb``: 114688 gave 112.00 GiB (https://github.com/antirez/ds4/pull/893)."""
LIMIT_NAME = "iogpu.wired_limit_mb"
BUFFER_SHARE = Fraction(3, 4)
"""Of the working set, in each public pair of the two, as 16 of 21.33 GiB.

https://github.com/riccardomusmeci/mlx-llm/issues/22, https://github.com/jjang-ai/vmlx/issues/89
"""


class Row(NamedTuple):
    """The default working set of Macs with `memory_gib`: the lower and the higher share, None where none was seen.

    `source` is the public report of the lower one; None where it is taken from both neighbours.
    """

    memory_gib: int
    lower: Fraction
    higher: Fraction | None
    source: str | None


_BLOG = "https://www.thinkdifferent.blog/blog"
_TWO_THIRDS, _THREE_QUARTERS = Fraction(2, 3), Fraction(3, 4)

TABLE = (
    Row(8, _TWO_THIRDS, None, "https://github.com/SceneWorks/SceneWorks/pull/1552"),
    Row(16, _TWO_THIRDS, Fraction(74, 100), "https://github.com/abetlen/llama-cpp-python/issues/687"),
    Row(24, _TWO_THIRDS, None, "https://github.com/jundot/omlx/issues/631"),
    Row(32, _TWO_THIRDS, Fraction(78, 100), "https://github.com/ollama/ollama/issues/434"),
    Row(36, _THREE_QUARTERS, None, f"{_BLOG}/the-macbook-pro-setting-that-doubles-your-ai-performance/"),
    Row(48, _THREE_QUARTERS, Fraction(78, 100), None),
    Row(64, _THREE_QUARTERS, Fraction(81, 100), "https://github.com/ggml-org/llama.cpp/issues/1870"),
    Row(96, _THREE_QUARTERS, None, "https://github.com/ggml-org/llama.cpp/issues/3213"),
    Row(128, _THREE_QUARTERS, Fraction(84, 100), "https://github.com/jjang-ai/vmlx/issues/89"),
    Row(192, _THREE_QUARTERS, None, "https://github.com/raullenchai/Rapid-MLX/pull/183"),
)
"""By memory. A size between two rows takes the lower row's share, below the first the first's, above the last the
last's: the share never falls with the memory, so that more memory never has a smaller working set."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """What a Mac says of its GPU; None is not known. `wired_limit_bytes` of 0 leaves the limit to macOS.

    `asked` names who told the first two; `apple_silicon` is False on an Intel Mac.
    """

    working_set_bytes: int | None = None
    max_buffer_bytes: int | None = None
    asked: str = "Metal"
    wired_limit_bytes: int | None = None
    apple_silicon: bool | None = None


def table_share(total_bytes: int) -> Fraction:
    """The lower share of `total_bytes` of memory that the GPU gets by default, as `TABLE` has it."""
    below = [row for row in TABLE if row.memory_gib * GIB <= total_bytes]
    return (below[-1] if below else TABLE[0]).lower


def working_set(total_bytes: int | None, gpu: GpuFacts) -> Figure:
    """The working set. Metal's own figure has the owner's limit in it; where both are known, the lower holds."""
    limit = gpu.wired_limit_bytes
    if limit and (gpu.working_set_bytes is None or limit < gpu.working_set_bytes):
        return _limited(limit, total_bytes)
    if gpu.working_set_bytes is not None:
        return Figure(gpu.working_set_bytes, "read", f"recommendedMaxWorkingSetSize, from {gpu.asked}")
    if gpu.apple_silicon is False:
        return Figure(None, "absent", "no Apple Silicon, on which alone MLX uses the GPU")
    if total_bytes is None:
        return Figure(None, "absent", "neither Metal's figure nor the memory is known")
    share = table_share(total_bytes)
    return Figure(
        int(total_bytes * share),
        "table",
        f"{share} of {render_bytes(total_bytes)}, the lower of the public figures; not read from this host",
    )


def max_buffer(working_set: Figure, gpu: GpuFacts) -> Figure:
    """The longest single buffer: as Metal says, else `BUFFER_SHARE` of the working set."""
    if gpu.max_buffer_bytes is not None:
        return Figure(gpu.max_buffer_bytes, "read", f"maxBufferLength, from {gpu.asked}")
    if working_set.nbytes is None:
        return Figure(None, "absent", "the working set is not known")
    return Figure(int(working_set.nbytes * BUFFER_SHARE), "table", f"{BUFFER_SHARE} of the working set; not read")


def with_wired_limit(memory: HostMemory, limit_mib: int) -> HostMemory:
    """`memory` as it would be after ``sysctl iogpu.wired_limit_mb=…``, which cannot give more than there is.

    0 gives the default back, which is then the table's. A host without a known working set stays as it is.
    """
    if memory.working_set_bytes.origin == "absent":
        return memory
    limit = limit_mib * MIB
    gpu = GpuFacts(wired_limit_bytes=limit)
    figure = working_set(memory.total_bytes.nbytes, gpu)
    return replace(memory, wired_limit_bytes=limit, working_set_bytes=figure, max_buffer_bytes=max_buffer(figure, gpu))


def _limited(limit_bytes: int, total_bytes: int | None) -> Figure:
    held = limit_bytes if total_bytes is None else min(limit_bytes, total_bytes)
    return Figure(held, "read", f"{LIMIT_NAME}={limit_bytes // MIB}")


__all__ = [
    "BUFFER_SHARE",
    "GIB",
    "LIMIT_NAME",
    "MIB",
    "TABLE",
    "GpuFacts",
    "Row",
    "max_buffer",
    "table_share",
    "with_wired_limit",
    "working_set",
]
