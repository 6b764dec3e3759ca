"""The login form has no script, and says what went wrong."""

from __future__ import annotations

import pytest

from kakeya_ops.dashboard.login import TOO_OFTEN, WRONG_KEY, login_page


def test_the_form_may_load_and_run_nothing() -> None:
    page = login_page()
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "form-action 'self'" in policy
    assert page.headers["cache-control"] == "no-store"
    text = bytes(page.body).decode()
    assert "<script" not in text
    assert "http" not in text
    assert '<label for="key">' in text
    assert 'lang="en"' in text


@pytest.mark.parametrize("message", [WRONG_KEY, TOO_OFTEN])
def test_a_message_is_an_alert_that_describes_the_field(message: str) -> None:
    text = bytes(login_page(message, 401).body).decode()
    assert f'<p role="alert" id="message">{message}</p>' in text
    assert 'aria-describedby="message"' in text
    assert '<p role="alert"' not in bytes(login_page().body).decode()
