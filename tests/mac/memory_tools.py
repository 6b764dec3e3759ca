"""The programs of macOS that tell about memory, as far as they are called."""

from __future__ import annotations

import os

from mac.codes import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mac.state import MacState

PAGE_BYTES = 16384
MIB = 2**20


def swap_usage(mac: MacState) -> str:
    """What ``vm.swapusage`` says."""
    total = 1024 * -(-int(mac.swap_used_mb + 1) // 1024)
    free = total - mac.swap_used_mb
    return f"total = {total:.2f}M  used = {mac.swap_used_mb:.2f}M  free = {free:.2f}M  (encrypted)"


def vm_stat(mac: MacState, _: list[str]) -> str:
    """Free memory is a quarter free pages, a half inactive and a quarter speculative ones."""
    pages, free = mac.memory_bytes // PAGE_BYTES, mac.free_memory_bytes // PAGE_BYTES
    compressor = mac.compressor_bytes // PAGE_BYTES
    used = pages - free - compressor
    inactive, active = free // 2, used // 2
    speculative = free - free // 4 - inactive
    counts = {
        "Pages free": free // 4,
        "Pages active": active,
        "Pages inactive": inactive,
        "Pages speculative": speculative,
        "Pages throttled": 0,
        "Pages wired down": used - active,
        "Pages purgeable": 1024,
        '"Translation faults"': 123456789,
        "File-backed pages": inactive + speculative,
        "Anonymous pages": active,
        "Pages stored in compressor": 3 * compressor,
        "Pages occupied by compressor": compressor,
        "Swapins": 0,
        "Swapouts": 0,
    }
    head = f"Mach Virtual Memory Statistics: (page size of {PAGE_BYTES} bytes)\n"
    return head + "".join(f"{name + ':':<32}{count:>16}.\n" for name, count in counts.items())


def memory_pressure(mac: MacState, _: list[str]) -> str:
    """What is free, in percent."""
    pages = mac.memory_bytes // PAGE_BYTES
    free = round(100 * mac.free_memory_bytes / mac.memory_bytes)
    return (
        f"The system has {mac.memory_bytes} ({pages} pages with a page size of {PAGE_BYTES}).\n"
        f"System-wide memory free percentage: {free}%\n"
    )


def osascript(mac: MacState, arguments: list[str]) -> str:
    """The answer to a script in JavaScript that asks Metal about the GPU."""
    if arguments[:3] != ["-l", "JavaScript", "-e"] or "MTLCreateSystemDefaultDevice" not in arguments[3]:
        raise Failure(1, "the simulated osascript knows of Metal only")
    if not mac.metal:
        raise Failure(1, "execution error: Error: TypeError: undefined is not an object (-2700)")
    size = mac.working_set_bytes or mac.wired_limit_mb * MIB or mac.memory_bytes * 2 // 3
    said = f'"max_recommended_working_set_size":{size},"max_buffer_length":{size * 3 // 4}'
    return f'{{"asked":"Metal",{said}}}\n'


def ps(mac: MacState, arguments: list[str]) -> str:
    """All processes, with the columns that are asked for; no headings."""
    columns = [arguments[at + 1].rstrip("=") for at, word in enumerate(arguments[:-1]) if word == "-o"]
    if not columns:
        real = next(path for path in ("/usr/bin/ps", "/bin/ps") if os.path.exists(path))
        os.execv(real, ["ps", *arguments])
    lines = []
    for pid, rss, _, line in mac.processes:
        values = {"pid": f"{pid:>5}", "rss": f"{rss:>7}", "args": line}
        lines.append(" ".join(values[column] for column in columns))
    return "".join(f"{line}\n" for line in lines)


def top(mac: MacState, arguments: list[str]) -> str:
    """One sample; MEM is the footprint, in a unit that leaves at most four digits."""
    if arguments[:2] != ["-l", "1"] or "pid,mem" not in arguments:
        raise Failure(1, "the simulated top takes one sample of pid,mem")
    head = f"Processes: {len(mac.processes)} total, 2 running, 412 sleeping, 1893 threads \n2026/02/03 04:05:06\n\n"
    rows = sorted(mac.processes, key=lambda process: -process[2])
    return head + "PID    MEM  \n" + "".join(f"{pid:<6} {_shown(kib):<6}\n" for pid, _, kib, _ in rows)


def _shown(kib: int) -> str:
    for unit in "KM":
        if kib < 10_000:
            return f"{kib}{unit}"
        kib //= 1024
    return f"{kib}G"
