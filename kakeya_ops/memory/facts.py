"""The memory of a host from what the probes of `kakeya_ops.memory.reading` found, or from the inventory alone.

Whatever a probe printed, reading it never fails: what cannot be understood is a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from fractions import Fraction

from kakeya_ops.memory.host import Figure, Gap, HostMemory, Pressure, Process
from kakeya_ops.memory.processes import parse_processes
from kakeya_ops.memory.vm_stat import PageCounts, parse_vm_stat
from kakeya_ops.memory.working_set import GIB, LIMIT_NAME, MIB, GpuFacts, max_buffer, working_set
from kakeya_ops.probes import MISSING, Finding

_MOST_BYTES = 2**50
_SYSCTL_LINE = re.compile(r"^([a-z]\w*(?:\.\w+)+): (.*)$", re.MULTILINE | re.ASCII)
_SWAP = re.compile(r"\bused = (\d{1,12}[.,]\d\d)M\b", re.ASCII)
_MEMINFO_LINE = re.compile(r"^(\w+):[ \t]+(\d{1,15}) kB$", re.MULTILINE | re.ASCII)
_NUMBER = re.compile(r"\d{1,15}", re.ASCII)
_PAGE_SIZES = frozenset({"4096", "16384", "65536"})
_WORD = re.compile(r"[\w.+~-]{1,80}", re.ASCII)
_PRESSURES: Mapping[int, Pressure] = {1: "normal", 2: "warning", 4: "critical"}
_NO_GPU = Figure(None, "absent", "Linux, where no GPU of Metal limits anything")


def parse_host(findings: Mapping[str, Finding]) -> HostMemory:
    """The memory of the host that `findings` are about."""
    system = findings.get("system", MISSING).text
    if system == "Darwin":
        return _Mac(findings).memory()
    if system == "Linux":
        return _Linux(findings).memory()
    reason = "the host does not say whether it is a Mac or runs Linux"
    nothing = Figure(None, "absent", reason)
    return HostMemory(
        system=None,
        total_bytes=nothing,
        working_set_bytes=nothing,
        max_buffer_bytes=nothing,
        gaps=(Gap("system", reason),),
    )


def pinned(memory_gb: float) -> HostMemory:
    """A Mac of which only `memory_gb` of the inventory is known: in GiB, as Apple counts memory (16 is 17179869184)."""
    total = int(memory_gb * GIB)
    gpu_bytes = working_set(total, GpuFacts())
    return HostMemory(
        system="macos",
        total_bytes=Figure(total, "pinned", "memory_gb of the inventory; the host was not asked"),
        working_set_bytes=gpu_bytes,
        max_buffer_bytes=max_buffer(gpu_bytes, GpuFacts()),
        gaps=(Gap("immediate_bytes", "the host was not asked"),),
    )


class _Facts:
    """What both systems have in common: findings, and the gaps noticed while reading them."""

    def __init__(self, findings: Mapping[str, Finding]) -> None:
        self._findings = findings
        self._gaps: list[Gap] = []

    def get(self, name: str) -> Finding:
        return self._findings.get(name, MISSING)

    def needed(self, fact: str, value: int | None, reason: str) -> int | None:
        """`value`, whose absence is a gap."""
        if value is None:
            self._gaps.append(Gap(fact, reason))
        return value

    def failure(self, probe: str) -> str:
        """Why nothing came of a probe."""
        finding = self.get(probe)
        if finding.status == 0:
            return f"{probe} printed nothing that is understood: {finding.text[:60]!r}"
        ended = "did not end" if finding.status < 0 else f"ended with status {finding.status}"
        return f"{probe} {ended}"

    def word(self, probe: str) -> str | None:
        """A version or a build."""
        finding = self.get(probe)
        text = finding.text.strip()
        return text if finding.status == 0 and _WORD.fullmatch(text) else None

    def total(self, nbytes: int | None, command: str, probe: str) -> Figure:
        if self.needed("total_bytes", nbytes, self.failure(probe)) is None:
            return Figure(None, "absent", self.failure(probe))
        return Figure(nbytes, "read", command)

    def processes(self) -> tuple[Process, ...]:
        found = parse_processes(self.get("processes").text, self.get("footprints").text)
        if found is None:
            self._gaps.append(Gap("processes", self.failure("processes")))
        return found or ()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(self._gaps)


class _Mac(_Facts):
    """The facts of macOS."""

    def __init__(self, findings: Mapping[str, Finding]) -> None:
        super().__init__(findings)
        self._sysctl = _unambiguous(_SYSCTL_LINE.findall(self.get("sysctl").text))

    def memory(self) -> HostMemory:
        total = self.total(_positive(self._number("hw.memsize")), "sysctl hw.memsize", "sysctl")
        pages, gpu = self._pages(total.nbytes), self._gpu(total.nbytes)
        gpu_bytes = working_set(total.nbytes, gpu)
        return HostMemory(
            system="macos",
            total_bytes=total,
            working_set_bytes=gpu_bytes,
            max_buffer_bytes=max_buffer(gpu_bytes, gpu),
            wired_limit_bytes=self.needed("wired_limit_bytes", gpu.wired_limit_bytes, f"no {LIMIT_NAME} from sysctl"),
            page_bytes=pages.page_bytes,
            immediate_bytes=self._counted("immediate_bytes", pages.immediate_bytes),
            optimistic_bytes=self._counted("optimistic_bytes", pages.optimistic_bytes),
            compressor_bytes=self._counted("compressor_bytes", pages.compressor_bytes),
            swap_used_bytes=self.needed("swap_used_bytes", self._swap(), "no vm.swapusage from sysctl"),
            pressure=_PRESSURES.get(self._number("kern.memorystatus_vm_pressure_level") or 0),
            processes=self.processes(),
            version=self.word("macos"),
            build=self.word("build"),
            gaps=self.gaps,
        )

    def _number(self, name: str) -> int | None:
        value = self._sysctl.get(name, "").strip()
        return int(value) if _NUMBER.fullmatch(value) else None

    def _swap(self) -> int | None:
        # A decimal comma where the locale has one.
        used = _SWAP.search(self._sysctl.get("vm.swapusage", ""))
        return None if used is None else int(Fraction(used[1].replace(",", ".")) * MIB)

    def _pages(self, total_bytes: int | None) -> PageCounts:
        pages = parse_vm_stat(self.get("vm_stat").text)
        misfit = pages.misfit(total_bytes)
        self._why_no_pages = misfit if misfit and pages.page_bytes else self.failure("vm_stat")
        return PageCounts(pages.page_bytes, {}) if misfit else pages

    def _counted(self, fact: str, value: int | None) -> int | None:
        return self.needed(fact, value, self._why_no_pages)

    def _gpu(self, total_bytes: int | None) -> GpuFacts:
        limit = self._number(LIMIT_NAME)
        said = _object(self.get("gpu").text)
        asked = said.get("asked")
        arm = self._number("hw.optional.arm64")
        return GpuFacts(
            working_set_bytes=_within(said.get("max_recommended_working_set_size"), total_bytes),
            max_buffer_bytes=_within(said.get("max_buffer_length"), total_bytes),
            asked=asked if isinstance(asked, str) and _WORD.fullmatch(asked) else "Metal",
            wired_limit_bytes=None if limit is None else limit * MIB,
            apple_silicon=None if arm is None and not self._sysctl else arm == 1,
        )


class _Linux(_Facts):
    """The facts of Linux, on which MLX computes without a GPU of Metal: there a model needs the machine's memory."""

    def memory(self) -> HostMemory:
        counts = {name: int(count) for name, count in _unambiguous(_MEMINFO_LINE.findall(self._meminfo)).items()}
        available = _kib(counts.get("MemAvailable"))
        total = self.total(_positive(_kib(counts.get("MemTotal"))), "MemTotal of /proc/meminfo", "meminfo")
        return HostMemory(
            system="linux",
            total_bytes=total,
            working_set_bytes=_NO_GPU,
            max_buffer_bytes=_NO_GPU,
            page_bytes=_page_bytes(self.get("page").text),
            immediate_bytes=self.needed("immediate_bytes", available, "no MemAvailable in /proc/meminfo"),
            optimistic_bytes=available,
            swap_used_bytes=self.needed("swap_used_bytes", _swap_used(counts), "no swap in /proc/meminfo"),
            processes=self.processes(),
            build=self.word("build"),
            gaps=self.gaps,
        )

    @property
    def _meminfo(self) -> str:
        return self.get("meminfo").text


def _unambiguous(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """`pairs` without names that come twice with different values."""
    values: dict[str, set[str]] = {}
    for name, value in pairs:
        values.setdefault(name, set()).add(value)
    return {name: found.pop() for name, found in values.items() if len(found) == 1}


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _within(value: object, total_bytes: int | None) -> int | None:
    """A figure of the GPU, which shares the machine's memory and so has no more than `total_bytes`."""
    most = _MOST_BYTES if total_bytes is None else total_bytes
    return value if type(value) is int and 0 < value <= most else None


def _positive(value: int | None) -> int | None:
    return value if value is not None and 0 < value < _MOST_BYTES else None


def _kib(count: int | None) -> int | None:
    return None if count is None else count * 1024


def _swap_used(counts: Mapping[str, int]) -> int | None:
    total, free = counts.get("SwapTotal"), counts.get("SwapFree")
    return None if total is None or free is None or free > total else (total - free) * 1024


def _page_bytes(text: str) -> int | None:
    return int(text) if text.strip() in _PAGE_SIZES else None


__all__ = ["parse_host", "pinned"]
