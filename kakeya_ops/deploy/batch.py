"""Several commands on a host in one call, one after the other, each with its own outcome.

A call over SSH costs a session and a round trip or two, whatever it runs. What belongs together is sent together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kakeya_ops.errors import CommandFailed, CommandTimeout
from kakeya_ops.probes import Finding, make_nonce, parse_findings, script_of
from kakeya_ops.remote.quoting import quote_command
from kakeya_ops.remote.runner import Result, Runner

_LEAST_SECONDS = 2
"""The host's clock is read in whole seconds."""
_BEGIN = b"""
began=$(date +%s) seconds=$1
in_time() { [ $(($(date +%s) - began)) -lt "$seconds" ] || exit 1; }
"""


@dataclass(frozen=True)
class Call:
    """A command, and what it reads from its standard input; that must not be binary, and is in no list of processes.

    `looks` says that it changes nothing, so that it does no harm however late it begins.
    """

    argv: tuple[str, ...]
    input: bytes = b""
    looks: bool = False


def run_all(runner: Runner, calls: Sequence[Call], timeout_seconds: float) -> list[Result]:
    """Run every one of `calls`, whatever became of those before it; their errors' text is not kept.

    None that changes anything begins in the second half of `timeout_seconds`: what follows a call that hangs must not
    happen when that comes to its end at last, and nobody waits for it any more.

    Raises `CommandTimeout` when all together take longer than `timeout_seconds`, `CommandFailed` when the host did not
    come to the end of them, and what `Runner.run` raises.
    """
    nonce = make_nonce()
    least = max(_LEAST_SECONDS, int(timeout_seconds / 2))
    body = b"".join(_lines(number, call, nonce) for number, call in enumerate(calls))
    script = script_of(_BEGIN + body, nonce)
    try:
        done = runner.run(script.argv((str(least),)), input=script.text, timeout_seconds=timeout_seconds)
    except CommandTimeout as error:
        raise CommandTimeout(runner.name, _shown(calls), timeout_seconds, ended=error.ended) from error
    found = parse_findings(done.stdout, nonce)
    results = [_result(found.get(str(number))) for number in range(len(calls))]
    whole = [result for result in results if result is not None]
    if len(whole) != len(calls):
        said = done.stderr.decode(errors="replace").strip()
        raise CommandFailed(runner.name, _shown(calls), done.status, said or "it did not come to its end")
    return whole


def _lines(number: int, call: Call, nonce: str) -> bytes:
    command = quote_command(call.argv)
    bound = "" if call.looks else "in_time\n"
    head = f"{bound}say begin {number}\n{command} 2>/dev/null <<'{nonce}'\n".encode()
    # Without input there is no line at all, not an empty one.
    text = call.input + b"\n" if call.input else b""
    return head + text + f"{nonce}\nsay end {number} $?\n".encode()


def _result(finding: Finding | None) -> Result | None:
    return None if finding is None else Result(finding.status, finding.output, b"")


def _shown(calls: Sequence[Call]) -> tuple[str, ...]:
    return ("sh", "-c", "; ".join(quote_command(call.argv) for call in calls))


__all__ = ["Call", "run_all"]
