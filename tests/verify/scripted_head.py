"""A head made of canned answers, for what the probe must see through. Real HTTP, real signatures, no model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kakeya_ops.verify.head_client import REQUEST_ID_HEADER
from kakeya_ops.wire.signing import DIRECTIVE_HEADER, NonceBook, body_digest, verify_directive
from verify.samples import (
    FLOOR_TOKENS,
    KEY,
    LOGPROBS,
    PROMPT_TOKENS,
    TOKENS,
    head_card,
    receipt,
    sign_receipt,
    worker_card,
)

LABELS = {
    frozenset({"remote"}): "cold",
    frozenset({"remote", "skip-local-pool"}): "repeated",
    frozenset({"local"}): "local",
}
Reply = tuple[int, Any]


class ScriptedHead:
    """Answers as an honest fleet would, as long as no test changes its attributes.

    `spoil` may change a receipt before it is signed. `replies` overrides whole answers by path. Each look at the fleet
    finds a new card of each node, but for the `late` looks after the first request: cards arrive with a delay. No look
    does when it is `frozen`; `before_look` is told the number of each.
    """

    def __init__(self) -> None:
        self.nodes = [worker_card()]
        self.head = head_card()
        self.spoil: Callable[[str, dict[str, Any]], Any] = lambda label, document: None
        self.late = 0
        self.counting = True
        self.frozen = False
        self.before_look: Callable[[int], Any] = lambda looks: None
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.prompts: list[dict[str, Any]] = []
        self.looks = 0
        self._receipts: dict[str, dict[str, Any]] = {}
        self._nonces = NonceBook()
        self._clock: Callable[[], float]

    def get(self, path: str) -> Reply:
        """The answer to ``GET path``."""
        if path == "/v1/network/nodes":
            self.looks += 1
            self.before_look(self.looks)
            if self.frozen:
                return 200, {"head": self.head, "nodes": self.nodes}
            if not self.prompts or self.late <= 0:
                for card in self.nodes:
                    card["issued_at"] = float(self.looks)
                    if self.counting:
                        card["counters"] = {"tokens_computed": FLOOR_TOKENS * len(self.prompts)}
            else:
                self.late -= 1
            return 200, {"head": self.head, "nodes": self.nodes}
        if path == "/healthz":
            return 200, {"status": "ok"}
        request_id = path.rpartition("/")[2]
        return (
            (200, self._receipts[request_id] | {"digest": "0" * 64})
            if request_id in self._receipts
            else (404, _error("no such receipt"))
        )

    def post(self, directive: str, body: bytes, now: float) -> tuple[str, Reply]:
        """The request id, and the answer to a completion."""
        asked = verify_directive(directive, [KEY], self._nonces, body_digest(body), now)
        label = LABELS[asked.modes]
        request_id = f"request-{label}"
        document = receipt(label) | {"client_nonce": asked.nonce}
        if label == "cold":
            times = {"started_at": self.looks + 0.25, "finished_at": self.looks + 0.5}
            document["remote"]["worker_receipt"].update(times, request_nonce=asked.nonce)
        self.spoil(label, document)
        self._receipts[request_id] = sign_receipt(document)
        self.prompts.append(json.loads(body))
        logprobs = {"tokens": TOKENS, "token_logprobs": LOGPROBS, "top_logprobs": [], "text_offset": []}
        choice = {"text": "".join(TOKENS), "index": 0, "finish_reason": "length", "logprobs": logprobs}
        return request_id, (200, {"choices": [choice], "usage": {"prompt_tokens": PROMPT_TOKENS}})


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "code": "some_code"}}


@contextmanager
def serve(head: ScriptedHead, clock: Callable[[], float]) -> Iterator[str]:
    """Serve `head` on a free port; the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(head.get(self.path), {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path in head.replies:
                self._reply((200, {}), {})
                return
            request_id, reply = head.post(self.headers[DIRECTIVE_HEADER], body, clock())
            self._reply(reply, {REQUEST_ID_HEADER: request_id})

        def _reply(self, reply: Reply, headers: dict[str, str]) -> None:
            status, content = head.replies.get(self.path, (reply[0], json.dumps(reply[1]).encode()))
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


__all__ = ["ScriptedHead", "serve"]
