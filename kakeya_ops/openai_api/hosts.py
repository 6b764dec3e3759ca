"""Which names a keyless API answers to: a page in a browser must not reach it under a name of its own choosing."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kakeya_ops.openai_api.errors import ApiError


class LoopbackHosts:
    """Refuses requests whose ``Host`` is neither ``localhost`` nor a loopback address.

    Without a key, loopback is the only protection, and any page may have its name resolve to 127.0.0.1. A request
    without ``Host`` comes from no browser.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        hosts = Headers(scope=scope).getlist("host") if scope["type"] == "http" else []
        if all(map(is_loopback_host, hosts)):
            await self._app(scope, receive, send)
            return
        message = "without API keys this server answers to localhost and loopback addresses alone"
        # Its body is not read, so that the connection is of no further use.
        refusal = ApiError(403, message, param="Host", code="host_not_allowed", headers={"Connection": "close"})
        await refusal.response()(scope, receive, send)


def is_loopback_host(host: str) -> bool:
    """Whether the value of a ``Host`` header is ``localhost`` or a loopback address, with or without a port."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


__all__ = ["LoopbackHosts", "is_loopback_host"]
