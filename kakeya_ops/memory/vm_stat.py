"""What ``vm_stat`` of macOS prints, and which pages of it can be had for something new.

A count that is missing or ambiguous is None, and so is all that would need it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_HEADER = re.compile(r"^Mach Virtual Memory Statistics: \(page size of (\d{4,6}) bytes\)\s*$", re.MULTILINE | re.ASCII)
_COUNT = re.compile(r"^([A-Z][A-Za-z -]*):\s+(\d{1,15})\.\s*$", re.MULTILINE | re.ASCII)
_PAGE_SIZES = frozenset({4096, 16384})
_LEAST_SHARE, _MOST_SHARE = Fraction(1, 2), Fraction(11, 10)
_ALL_PAGES = (
    "Pages free",
    "Pages active",
    "Pages inactive",
    "Pages speculative",
    "Pages wired down",
    "Pages occupied by compressor",
)


@dataclass(frozen=True, slots=True)
class PageCounts:
    """Pages by vm_stat's own names, and how large they are: 16384 bytes on Apple Silicon, 4096 on Intel."""

    page_bytes: int | None
    counts: dict[str, int]

    @property
    def immediate_bytes(self) -> int | None:
        """Free, or only a copy of a file.

        File-backed pages include the speculative ones: in whole outputs, file-backed and anonymous pages make exactly
        active, inactive and speculative ones (https://apple.stackexchange.com/questions/347037), so that adding
        these as well would count them twice.
        """
        return self._bytes("Pages free", "File-backed pages")

    @property
    def optimistic_bytes(self) -> int | None:
        """What psutil calls available: inactive pages may be an application's, to be compressed or swapped first.

        Purgeable pages lie among the others and are not added (https://github.com/PricingFrontier/haute/pull/171).
        """
        return self._bytes("Pages free", "Pages speculative", "Pages inactive")

    @property
    def compressor_bytes(self) -> int | None:
        """What the compressor occupies; what is stored in it is more than that, and no memory that is taken.

        See https://github.com/graelo/pumas/issues/36.
        """
        return self._bytes("Pages occupied by compressor")

    def misfit(self, total_bytes: int | None) -> str | None:
        """Why the counts cannot be taken for those of a machine with `total_bytes`; None when they can.

        A translated program may see pages of another size than those that were counted, which makes everything wrong
        by a factor of four. So what cannot be checked is not believed either.
        """
        everything = self._bytes(*_ALL_PAGES)
        if everything is None:
            return f"vm_stat does not tell all of: its page size, {', '.join(_ALL_PAGES)}"
        if not total_bytes:
            return "without the memory's size, the pages of vm_stat cannot be checked"
        if _LEAST_SHARE <= Fraction(everything, total_bytes) <= _MOST_SHARE:
            return None
        return f"vm_stat's pages of {self.page_bytes} bytes make {everything} bytes of the {total_bytes} that there are"

    def _bytes(self, *names: str) -> int | None:
        counts = [self.counts.get(name) for name in names]
        known = [count for count in counts if count is not None]
        return None if self.page_bytes is None or len(known) < len(counts) else sum(known) * self.page_bytes


def parse_vm_stat(text: str) -> PageCounts:
    """The counts in `text`, whatever it is. A name that comes twice with different counts is left out."""
    sizes = {int(size) for size in _HEADER.findall(text)} & _PAGE_SIZES
    found: dict[str, set[int]] = {}
    for name, count in _COUNT.findall(text):
        found.setdefault(name, set()).add(int(count))
    counts = {name: values.pop() for name, values in found.items() if len(values) == 1}
    return PageCounts(sizes.pop() if len(sizes) == 1 else None, counts)


__all__ = ["PageCounts", "parse_vm_stat"]
