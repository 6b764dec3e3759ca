"""Who may see the dashboard: keys and sessions, hosts and origins, checked before anything of the page is reached."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, NoMatchFound
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kakeya_ops.dashboard.login import TOO_OFTEN, WRONG_KEY, login_page
from kakeya_ops.dashboard.sessions import SESSION_SECONDS, Sessions, Tries
from kakeya_ops.openai_api.errors import ApiError
from kakeya_ops.openai_api.hosts import is_loopback_host
from kakeya_ops.openai_api.settings import ApiSettings

SOCKET_PATH = "/_nicegui_ws/"
_PATHS = ("/", "/login", "/logout", "/favicon.ico")
_PREFIXES = ("/_nicegui/", SOCKET_PATH)
_FORM_BYTES = 4096
_SECURITY = {
    # Vue compiles its templates in the browser.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class Door(BaseRoute):
    """The dashboard's paths: lets through to `page` whoever may see it, which learns ``tenant`` and ``session``.

    Without keys everybody on this machine may: `page` is told a session of "". `page` is asked for assets by GET and
    holds its connection over a websocket, never by long polling.
    """

    def __init__(self, page: ASGIApp, settings: ApiSettings) -> None:
        self._page = page
        self._settings = settings
        self._sessions = Sessions()
        self._tries = Tries()

    def is_open(self, session: str) -> bool:
        """Whether `session` may still see the page; from any thread."""
        return self._settings.keys is None or self._sessions.tenant_of(session) is not None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See `BaseRoute`."""
        path = scope.get("path", "")
        ours = scope["type"] in ("http", "websocket") and (path in _PATHS or path.startswith(_PREFIXES))
        return (Match.FULL if ours else Match.NONE), {}

    def url_path_for(self, name: str, /, **path_params: object) -> NoMatchFound:  # type: ignore[override] # never returns
        """See `BaseRoute`: these paths have no names."""
        raise NoMatchFound(name, path_params)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        connection = HTTPConnection(scope)
        try:
            self._check_origin(connection)
            answer = await self._answer(connection, receive)
        except ApiError as error:
            answer = error.response()
        if answer is not None and scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif answer is not None:
            await answer(scope, receive, send)
        else:
            await self._page(scope, receive, _with_headers(send))

    async def _answer(self, connection: HTTPConnection, receive: Receive) -> Response | None:
        """The door's own answer; None when the page shall answer."""
        path, method = connection.url.path, connection.scope.get("method", "GET")
        if path in ("/login", "/logout"):
            return await self._admit(Request(connection.scope, receive), path, method)
        if method not in ("GET", "HEAD"):
            return ApiError(405, f"{method} is not a method of this route", code="method_not_allowed").response()
        if path.startswith(SOCKET_PATH) is not (connection.scope["type"] == "websocket"):
            return ApiError(404, f"no route {path[:200]!r}", code="not_found").response()
        session = connection.cookies.get(self._cookie(connection), "")
        tenant = self._tenant(session)
        if tenant is None:
            return RedirectResponse("/login", HTTPStatus.SEE_OTHER) if path == "/" else _refusal().response()
        connection.scope.setdefault("state", {}).update(tenant=tenant, session=session)
        return None

    def _tenant(self, session: str) -> str | None:
        keyless = self._settings.keys is None
        return self._settings.default_tenant if keyless else self._sessions.tenant_of(session)

    async def _admit(self, request: Request, path: str, method: str) -> Response:
        if self._settings.keys is None:
            return RedirectResponse("/", HTTPStatus.SEE_OTHER)
        if path == "/logout" and method == "POST":
            self._sessions.close(request.cookies.get(self._cookie(request), ""))
            return self._leave(request)
        if path == "/login" and method == "POST":
            return await self._log_in(request)
        return login_page()

    async def _log_in(self, request: Request) -> Response:
        assert self._settings.keys is not None
        address = request.client.host if request.client else ""
        # Before the look at earlier tries: whatever waits between that look and the key would let others past it.
        key = await _read_key(request, self._settings.limits.body_seconds)
        if wait := self._tries.wait_seconds(address):
            page = login_page(TOO_OFTEN, HTTPStatus.TOO_MANY_REQUESTS)
            page.headers["Retry-After"] = str(int(wait) + 1)
            return page
        tenant = self._settings.keys.tenant_of(f"Bearer {key}")
        if tenant is None:
            self._tries.wrong(address)
            return login_page(WRONG_KEY, HTTPStatus.UNAUTHORIZED)
        self._tries.right(address)
        answer = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        secure = request.url.scheme == "https"
        token, name = self._sessions.open(tenant), self._cookie(request)
        answer.set_cookie(name, token, SESSION_SECONDS, httponly=True, secure=secure, samesite="strict")
        return answer

    def _leave(self, request: Request) -> Response:
        answer = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        answer.delete_cookie(self._cookie(request), httponly=True, samesite="strict")
        return answer

    def _cookie(self, connection: HTTPConnection) -> str:
        """Browsers do not tell the ports of a host apart, and there may be a head on each."""
        return f"kakeya-{(connection.scope.get('server') or ('', 0))[1]}"

    def _check_origin(self, connection: HTTPConnection) -> None:
        """Raise `ApiError` for a page of another origin, and without keys for a name that is not this machine's."""
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        if self._settings.keys is None and not is_loopback_host(host):
            message = "without API keys this server answers to localhost and loopback addresses alone"
            raise ApiError(403, message, param="Host", code="host_not_allowed")
        if origin is not None and origin.partition("://")[2] != host:
            raise ApiError(403, "this page is for itself alone", param="Origin", code="origin_not_allowed")


async def _read_key(request: Request, seconds: float) -> str:
    """The form's key; empty when there is none. Raises `ApiError` for a form too large to be ours, or too slow."""
    body = b""
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > _FORM_BYTES:
                    raise ApiError(413, "the form is too large", code="body_too_large")
    except TimeoutError:
        message = f"the form did not arrive within {seconds:g} s"
        raise ApiError(408, message, code="request_timeout", headers={"Connection": "close"}) from None
    return parse_qs(body.decode("latin-1")).get("key", [""])[0].strip()


def _refusal() -> ApiError:
    return ApiError(401, "log in at /login with an API key", code="invalid_api_key")


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(_SECURITY)
        await send(message)

    return send_with_headers


__all__ = ["SOCKET_PATH", "Door"]
