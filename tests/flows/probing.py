"""The acceptance probe as a person runs it, and other clients meanwhile."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from flows.loopback import LoopbackFleet
from flows.prompts import fresh_prompt

Verdict = dict[str, Any]
PROMPT_TOKENS = 600


def kakeya_verify(inventory: Path, *options: str) -> tuple[int, Verdict | None, str]:
    """Exit code, JSON document and error output of the command."""
    command = [sys.executable, "-m", "kakeya_ops.cli.main", "--inventory", str(inventory), "--json"]
    done = subprocess.run([*command, "verify", "remote-prefill", *options], capture_output=True, text=True, timeout=100)
    return done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else None, done.stderr


def wrong(document: Verdict | None) -> dict[str, str]:
    """The checks that did not hold, with what they say."""
    assert document is not None
    return {check["name"]: check["detail"] for check in document["checks"] if check["verdict"] != "ok"}


@contextlib.contextmanager
def traffic(fleet: LoopbackFleet, clients: int = 3) -> Iterator[Callable[[], int]]:
    """Other clients, whose cold prompts go to the worker, for as long as the block runs; how many were answered."""
    over, counts = threading.Event(), [0] * clients

    def ask(client: int) -> None:
        while not over.is_set():
            fleet.head.complete(fresh_prompt(PROMPT_TOKENS), "remote", max_tokens=4)
            counts[client] += 1

    threads = [threading.Thread(target=ask, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(counts)
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


__all__ = ["PROMPT_TOKENS", "Verdict", "kakeya_verify", "traffic", "wrong"]
