"""The acceptance probe against real processes: what makes it pass, and what cannot."""

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


def test_it_passes_while_others_are_served(pair: LoopbackFleet) -> None:
    with traffic(pair) as answered:
        before = answered()
        code, document, _ = kakeya_verify(pair.write_inventory("head"))
        assert answered() > before
    assert (code, wrong(document)) == (0, {})
    assert document is not None
    assert (document["passed"], document["worker"]) == (True, "worker")
    assert len(document["checks"]) > 10


def test_without_its_worker_it_fails_whatever_others_do(pair: LoopbackFleet) -> None:
    pair.head.complete(fresh_prompt(PROMPT_TOKENS), "remote")
    pair.end("worker")
    try:
        with traffic(pair):
            code, document, _ = kakeya_verify(pair.write_inventory("head"))
        assert code == 1
        assert document is not None
        assert not document["passed"]
        assert "worker" in " ".join(wrong(document).values())
    finally:
        pair.restart("worker")


def test_without_a_head_it_cannot_be_carried_out(pair: LoopbackFleet) -> None:
    nobody = f"http://127.0.0.1:{pair.proxies['worker'].port + 1}"
    code, document, said = kakeya_verify(pair.write_inventory("head"), "--url", nobody)
    assert (code, document) == (3, None)
    assert "cannot be reached" in said
    assert "Traceback" not in said
