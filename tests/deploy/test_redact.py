"""No secret gets through, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.deploy.redact import HIDDEN, redact
from kakeya_ops.secret import Secret


@given(st.binary(min_size=16, max_size=64), st.text(), st.text())
def test_a_known_secret_is_hidden_in_every_form(value: bytes, before: str, after: str) -> None:
    for form in (value.hex(), value.hex().upper(), repr(value)):
        assert form not in redact(f"{before} {form} {after}", Secret(value))


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Kakeya node=head, mac=0123456789abcdef0123",
        '"authorization": "Bearer abcdefgh"',
        "bearer abc.def-ghi",
        "OPENAI_API_KEY=abcdefgh1234",
        "api_key: 'abcdefgh1234'",
        '"access_token": "abcdefgh1234"',
        "password=hunter2hunter2",
        "mac=0123456789abcdef0123456789abcdef",
        "sk-abcdefgh1234",
        "hf_abcdefgh1234",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    shown = redact(text)
    assert HIDDEN in shown
    for secret in ("abcdefgh", "0123456789abcdef", "hunter2", "def-ghi"):
        assert secret not in shown


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens 128",
        "block_tokens: 64",
        '{"max_tokens": 512}',
        "tokens/s 3.5",
        "block 0123456789abcdef0123",
        "<key>Label</key>",
        "",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert redact(text, None) == text
