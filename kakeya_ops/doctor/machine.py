"""The machine itself: system, Python, disk, memory, clock."""

from __future__ import annotations

from collections.abc import Iterator

from kakeya_ops.doctor.finding import Finding, Verdict
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.memory.host import Process
from kakeya_ops.memory.verdict import Answer
from kakeya_ops.observe.state import Python, Unknown
from kakeya_ops.units import render_bytes
from kakeya_ops.wire.nonces import WINDOW_SECONDS

LEAST_PYTHON = (3, 11)
PROGRAMS_BYTES = 3 * 2**30
"""Of the programs of two generations with all that they depend on, roughly."""
_CLOCK_DOUBTFUL_SECONDS = WINDOW_SECONDS / 6

_MEMORY: dict[Answer, Verdict] = {"fits": "ok", "tight": "warning", "does not fit": "failed", "unknown": "unknown"}


def check_machine(patient: Patient) -> Iterator[Finding]:
    """Everything about the machine itself."""
    yield _system(patient)
    yield patient.about("python", patient.state.python, lambda python: _python(patient, python))
    yield patient.about("disk", patient.state.disk_free_bytes, lambda free: _disk(patient, free))
    yield from _memory(patient)
    yield _wired_limit(patient)
    yield _other_servers(patient)
    yield patient.about("clock", patient.fact(lambda facts: facts.clock_ahead_seconds), lambda s: _clock(patient, s))


def _system(patient: Patient) -> Finding:
    macos, chip = patient.state.macos, patient.state.chip
    if isinstance(macos, Unknown):
        return patient.say("system", "warning", "not macOS", "a Mac with Apple Silicon computes many times as fast")
    if isinstance(chip, Unknown) or "Apple" not in chip:
        return patient.say("system", "failed", f"macOS {macos} on {chip}", "MLX needs a Mac with Apple Silicon")
    return patient.say("system", "ok", f"macOS {macos} on {chip}")


def _python(patient: Patient, python: Python | None) -> Finding:
    fix = (
        f"ssh {patient.host.ssh_host} brew install python@3.12; "
        f"or name one: hosts.{patient.name}.python in the inventory"
    )
    if python is None:
        return patient.say("python", "failed", "no Python of 3.11 or newer was found", fix)
    words = f"{python.path} is Python {python.version[0]}.{python.version[1]}"
    if python.version < LEAST_PYTHON:
        return patient.say("python", "failed", f"{words}; 3.11 or newer is needed", fix)
    return patient.say("python", "ok", words)


def _disk(patient: Patient, free_bytes: int) -> Finding:
    words = f"{render_bytes(free_bytes)} are free"
    if free_bytes < PROGRAMS_BYTES:
        return patient.say(
            "disk",
            "failed",
            f"{words}; the programs of two generations take about {render_bytes(PROGRAMS_BYTES)}",
            f"make room on {patient.name}, or let hosts.{patient.name}.install_root lead to another volume",
        )
    return patient.say("disk", "ok", words)


def _memory(patient: Patient) -> Iterator[Finding]:
    if patient.memory is not None:
        verdict = _MEMORY[patient.memory.verdict.answer]
        fix = None if verdict == "ok" else f"kakeya memory {patient.name} shows every term and what would help"
        yield patient.say("memory", verdict, f"as a {patient.host.role}: {patient.memory.summary}", fix)


def _wired_limit(patient: Patient) -> Finding:
    limit_bytes = patient.state.memory.wired_limit_bytes
    if limit_bytes is None:
        reason = "the host did not say" if patient.is_mac else "only macOS has one"
        return patient.say("wired-limit", "unknown" if patient.is_mac else "ok", reason)
    if limit_bytes == 0:
        return patient.say("wired-limit", "ok", "left to macOS")
    return patient.say(
        "wired-limit",
        "warning",
        f"set to {render_bytes(limit_bytes)}, which does not outlive a restart",
        f"ssh {patient.host.ssh_host} sudo sysctl iogpu.wired_limit_mb=0 leaves it to macOS; "
        "or set it again after each restart",
    )


def _other_servers(patient: Patient) -> Finding:
    others = [process for process in patient.state.memory.processes if process.is_mlx_server]
    if not others:
        return patient.say("other-servers", "ok", "none runs")
    pids = " ".join(str(process.pid) for process in others)
    return patient.say(
        "other-servers",
        "warning",
        f"{', '.join(map(_describe, others))}",
        f"end them before the node loads its model: ssh {patient.host.ssh_host} kill {pids}",
    )


def _describe(process: Process) -> str:
    return f"{process.name} (pid {process.pid}) holds {render_bytes(process.footprint_bytes)}"


def _clock(patient: Patient, ahead_seconds: float) -> Finding:
    doubt = 0.0 if isinstance(patient.facts, Unknown) else patient.facts.clock_doubt_seconds
    off = max(abs(ahead_seconds) - doubt, 0.0)
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    words = f"{abs(ahead_seconds):.0f} s {direction} this machine" if off else "as this machine's"
    verdict: Verdict = "ok" if off < _CLOCK_DOUBTFUL_SECONDS else "warning" if off < WINDOW_SECONDS else "failed"
    fix = None if verdict == "ok" else f"ssh {patient.host.ssh_host} sudo sntp -sS time.apple.com; the same here"
    return patient.say("clock", verdict, words, fix)


__all__ = ["LEAST_PYTHON", "PROGRAMS_BYTES", "check_machine"]
