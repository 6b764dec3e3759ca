"""The login form: a page of fixed text, without script."""

from __future__ import annotations

from http import HTTPStatus
from importlib.resources import files

from starlette.responses import HTMLResponse

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}

WRONG_KEY = "That is none of this head's API keys."
TOO_OFTEN = "Too many wrong keys from this address. Wait a minute, then try again."

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Kakeya: log in</title>
<style>{style}</style>
</head>
<body class="login">
<main>
<form method="post" action="/login">
<h1>Kakeya</h1>
<p>This head's dashboard opens with an API key.</p>
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus{described}>
{message}<button type="submit">Log in</button>
</form>
</main>
</body>
</html>
"""


def login_page(message: str = "", status: int = HTTPStatus.OK) -> HTMLResponse:
    """The form; `message` is one of this module's own, never a value from elsewhere."""
    told = f'<p role="alert" id="message">{message}</p>\n' if message else ""
    described = ' aria-describedby="message" aria-invalid="true"' if message else ""
    style = files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    return HTMLResponse(_PAGE.format(style=style, message=told, described=described), status, SECURITY)


__all__ = ["SECURITY", "TOO_OFTEN", "WRONG_KEY", "login_page"]
