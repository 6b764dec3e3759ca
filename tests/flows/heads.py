"""A head as its clients see it, and requests that can be left before they are answered."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from kakeya_ops.demo.fleet import LOOPBACK
from kakeya_ops.secret import Secret
from kakeya_ops.verify.head_client import Completion, HeadClient
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, body_digest, new_nonce, sign_directive
from waiting import wait_until

Receipt = dict[str, Any]
T = TypeVar("T")


def try_until(attempt: Callable[[], T | None], what: str, attempts: int = 8) -> T:
    """What `attempt` finds, as soon as it finds something.

    For what passes by itself, such as the middle of a stream: on a crowded machine one may come too late for it.
    """
    for _ in range(attempts):
        if (found := attempt()) is not None:
            return found
    raise AssertionError(f"{what} was not met in {attempts} attempts")


class Head:
    """One head's API at `port`. `key` signs directives, `api_key` opens the API where it is guarded."""

    def __init__(self, port: int, key: Secret, api_key: str | None = None) -> None:
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self.api_key = api_key
        self._key = key
        self.client_key = Secret(api_key.encode()) if api_key else None
        self.client = HeadClient(self.url, self.client_key)

    def close(self) -> None:
        """Close the connections."""
        self.client.__exit__(None, None, None)

    def complete(self, prompt: str, *modes: str, max_tokens: int = 12) -> tuple[Completion, Receipt]:
        """A greedy completion under a signed directive, and its receipt."""
        body, headers = self._request(prompt, modes, {"max_tokens": max_tokens})
        completion = self.client.complete(body, headers)
        return completion, self.client.receipt(completion.request_id)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The raw answer to a POST."""
        headers = {"Content-Type": "application/json"}
        return self.client._http.post(path, content=json.dumps(body).encode(), headers=headers)

    @contextlib.contextmanager
    def started(self, prompt: str, *modes: str, max_tokens: int = 12) -> Iterator[socket.socket]:
        """A streaming completion that has been sent; its client is gone when the block ends."""
        body, headers = self._request(prompt, modes, {"max_tokens": max_tokens, "stream": True})
        headers |= {"Host": LOOPBACK, "Content-Type": "application/json", "Content-Length": str(len(body))}
        lines = ["POST /v1/completions HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        with socket.create_connection((LOOPBACK, self.port), timeout=30) as connection:
            connection.sendall("\r\n".join(lines).encode() + body)
            yield connection

    def network(self) -> dict[str, Any]:
        """``/v1/network/nodes``."""
        return self.client.network()

    def node(self, name: str) -> dict[str, Any]:
        """What the head says about the node called `name`; empty when it does not know it."""
        return next((node for node in self.network()["nodes"] if node["node"] == name), {})

    def usable(self, name: str) -> bool:
        """Whether the head would ask the node called `name`."""
        return bool(self.node(name).get("usable"))

    def wait_for_peer(self, name: str) -> None:
        """Wait until the head would ask the node called `name`."""
        wait_until(lambda: self.usable(name), f"meeting {name}")

    def counters(self) -> dict[str, Any]:
        """The head's counters, with fallbacks by reason."""
        summary = self.get("/v1/network/summary")
        return {**summary["counters"], "by_reason": summary["fallbacks_by_reason"]}

    def get(self, path: str) -> dict[str, Any]:
        """The JSON document at `path`."""
        return self.client._json(self.client._send("GET", path))

    def _request(self, prompt: str, modes: tuple[str, ...], parameters: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
        body = json.dumps({"prompt": prompt, "temperature": 0, "logprobs": 1} | parameters).encode()
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        if modes:
            directive = sign_directive(self._key, frozenset(modes), new_nonce(), body_digest(body), time.time())
            headers[DIRECTIVE_HEADER] = directive
        return body, headers


__all__ = ["Head", "Receipt", "try_until", "wait_until"]
