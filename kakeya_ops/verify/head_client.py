"""The head's HTTP API as the probe sees it. The only place in `verify` that touches a socket."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import quote

import httpx

from kakeya_ops.errors import PeerRefused, PeerTimeout, PeerUnreachable
from kakeya_ops.secret import Secret

REQUEST_ID_HEADER = "X-Request-Id"
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Completion:
    """A text completion: `tokens` as text with the log-probability of each."""

    request_id: str
    prompt_tokens: int
    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]


class HeadClient:
    """Calls the head at `url`. Use it as a context manager.

    Every method raises `PeerUnreachable` or `PeerTimeout` when there is no answer, and `PeerRefused` when the answer is
    an error or not what the API promises.
    """

    def __init__(self, url: str, api_key: Secret | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key.reveal().decode()}"} if api_key else {}
        # The fleet is never behind the environment's proxy.
        timeout = httpx.Timeout(_ANSWER_SECONDS, connect=_CONNECT_SECONDS)
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)

    def __enter__(self) -> HeadClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def network(self) -> dict[str, Any]:
        """The head and the nodes it knows."""
        return self.document("/v1/network/nodes")

    def document(self, path: str) -> dict[str, Any]:
        """The JSON object at `path`."""
        return self._json(self._send("GET", path))

    def post(self, path: str, body: bytes) -> dict[str, Any]:
        """The JSON object that answers the JSON `body`."""
        return self._json(self._send("POST", path, body, {"Content-Type": "application/json"}))

    def summary(self) -> dict[str, Any]:
        """The head's counters, and its fallbacks by reason."""
        return self._json(self._send("GET", "/v1/network/summary"))

    def receipt(self, request_id: str) -> dict[str, Any]:
        """The signed receipt of one request, without the digest that the API adds to it."""
        document = self._json(self._send("GET", f"/v1/network/receipts/{quote(request_id, safe='')}"))
        document.pop("digest", None)
        return document

    def healthy(self) -> bool:
        """Whether ``/healthz`` says yes; False too when nothing answers."""
        try:
            return self._http.get("/healthz", timeout=_CONNECT_SECONDS).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    def complete(self, body: bytes, headers: Mapping[str, str]) -> Completion:
        """Send the JSON `body` of a text completion that asks for log-probabilities."""
        reply = self._send("POST", "/v1/completions", body, {"Content-Type": "application/json", **headers})
        document = self._json(reply)
        try:
            choice = document["choices"][0]
            return Completion(
                request_id=str(reply.headers[REQUEST_ID_HEADER]),
                prompt_tokens=int(document["usage"]["prompt_tokens"]),
                text=str(choice["text"]),
                tokens=tuple(str(token) for token in choice["logprobs"]["tokens"]),
                logprobs=tuple(float(value) for value in choice["logprobs"]["token_logprobs"]),
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PeerRefused(self.url, reply.status_code, "malformed", f"its completion lacks {error}") from error

    def chat(self, model: str, content: str, max_tokens: int) -> tuple[str, str]:
        """Greedy answer to one user message: its request id and its text."""
        messages = [{"role": "user", "content": content}]
        request = {"model": model, "messages": messages, "temperature": 0, "max_tokens": max_tokens}
        body = json.dumps(request).encode()
        reply = self._send("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        document = self._json(reply)
        try:
            return str(reply.headers[REQUEST_ID_HEADER]), str(document["choices"][0]["message"]["content"])
        except (KeyError, IndexError, TypeError) as error:
            raise PeerRefused(self.url, reply.status_code, "malformed", f"its answer lacks {error}") from error

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        try:
            reply = self._http.request(method, path, content=body, headers=headers)
        except httpx.TimeoutException as error:
            raise PeerTimeout(self.url, f"the head did not answer {method} {path} in time") from error
        except (httpx.RequestError, httpx.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise PeerUnreachable(
                self.url, f"the head cannot be reached ({reason})", hint="start it with: kakeya serve head NAME"
            ) from error
        if not reply.is_success:
            self._raise_refusal(reply)
        return reply

    def _raise_refusal(self, reply: httpx.Response) -> NoReturn:
        try:
            error = reply.json()["error"]
            code, message = str(error.get("code") or error.get("type")), str(error["message"])
        except (ValueError, KeyError, TypeError, AttributeError):
            code, message = "error", f"it answered with status {reply.status_code}"
        raise PeerRefused(self.url, reply.status_code, code, message)

    def _json(self, reply: httpx.Response) -> dict[str, Any]:
        try:
            document = json.loads(reply.content, parse_constant=_refuse_constant)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise PeerRefused(
                self.url, reply.status_code, "malformed", f"its answer to {reply.url.path} is no JSON object"
            )
        return document


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


__all__ = ["REQUEST_ID_HEADER", "Completion", "HeadClient"]
