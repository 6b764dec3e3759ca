"""The one kind that ends the head itself: the request under way must end soon, the next ones be served as before."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaiting

from kakeya_ops.drill.asking import LOCAL, Asked, Inquirer
from kakeya_ops.drill.catalogue import Kind
from kakeya_ops.drill.nodes import NodeDoor
from kakeya_ops.drill.report import Result, Seen, judge
from kakeya_ops.errors import PeerError, PeerRefused
from kakeya_ops.wire.signing import new_nonce

RETURN_SECONDS = 180.0
"""A head has its model to load."""
_END_SECONDS = 20.0
"""How soon whoever waits for an answer must be told that there is none."""
_LONG_ANSWER_TOKENS = 200
_UNDER_WAY_SECONDS = 0.2
_TRIES = 3


def restart_head(kind: Kind, inquirer: Inquirer, head: NodeDoor, worker: str) -> Result:
    """End the head in the middle of a request, and see how that request ends and how the next one fares."""
    assert kind.fault is not None
    with ThreadPoolExecutor(1) as aside:
        try:
            epoch = inquirer.client.network()["head"]["epoch"]
            body = inquirer.body(_LONG_ANSWER_TOKENS)
            asked = aside.submit(inquirer.ask, body, LOCAL, new_nonce())
            time.sleep(_UNDER_WAY_SECONDS)
            head.arm(kind.fault)
        except PeerRefused as error:
            return Result(kind.name, "skipped", None, None, None, error.message)
        except PeerError as error:
            return Result(kind.name, "failed", None, None, None, error.message)
        ended = _end_of(asked)
    if ended is None:
        return Result(kind.name, "failed", None, None, None, "whoever waited for an answer was not told of the end")
    return _afterwards(kind, inquirer, (worker, epoch), ended)


def _end_of(asked: Future[Asked]) -> str | None:
    """How the request under way ended, None if it did not."""
    try:
        asked.result(_END_SECONDS)
    except StillWaiting:
        return None
    except PeerError as error:
        return f"the request under way ended with: {error.message}"
    return "the request under way was answered before"


def _afterwards(kind: Kind, inquirer: Inquirer, before: tuple[str, int], ended: str) -> Result:
    worker, epoch = before

    def back() -> bool:
        try:
            fresh = inquirer.client.network()["head"]["epoch"] != epoch
            return fresh and bool(inquirer.node(worker).get("usable"))
        except PeerError:
            return False

    took = inquirer.wait(back, RETURN_SECONDS)
    if took is None:
        return Result(kind.name, "failed", None, None, None, f"the head did not come back; {ended}")
    try:
        body, asked = _ask_patiently(kind, inquirer, worker)
        local = inquirer.ask(body, LOCAL, new_nonce())
    except PeerError as error:
        return Result(kind.name, "failed", None, None, None, f"the head came back, but: {error.message}")
    seen = Seen(asked.completion.tokens, local.completion.tokens, asked.receipt, None, {}, took)
    result = judge(kind, seen, 0.0)
    detail = f"{ended}; back after {took:.1f} s; {result.detail}"
    return Result(kind.name, result.verdict, result.outcome, result.tokens_equal, took, detail, result.request_id, took)


def _ask_patiently(kind: Kind, inquirer: Inquirer, worker: str) -> tuple[bytes, Asked]:
    """A request and its answer, with the worker's help: a machine on which all has just begun may be late at first."""

    def ask() -> tuple[bytes, Asked]:
        body = inquirer.body()
        return body, inquirer.ask(body, kind.modes, new_nonce(), worker)

    found, tries = ask(), 1
    while found[1].receipt.get("remote") is None and tries < _TRIES:
        inquirer.wait(lambda: bool(inquirer.node(worker).get("usable")), RETURN_SECONDS)
        found, tries = ask(), tries + 1
    return found


__all__ = ["RETURN_SECONDS", "restart_head"]
