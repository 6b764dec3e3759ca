from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from kakeya_ops.errors import InputError
from kakeya_ops.wire.body import Count, HexDigest, Name, Nonce, Seconds, TellingBody, WireBody


class Sample(WireBody):
    digest: HexDigest = "a" * 64
    nonce: Nonce = "b" * 32
    name: Name = "head"
    count: Count = 0
    seconds: Seconds = 0.0

    limit_bytes: ClassVar[int] = 1024


def encode(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_bodies_survive_the_wire() -> None:
    body = Sample(name="häd", count=2**63 - 1, seconds=0.1)
    assert Sample.parse(body.encode()) == body
    assert Sample(**body.to_json()) == body


def test_whole_seconds_are_seconds() -> None:
    assert Sample.parse(encode(seconds=3)).seconds == 3.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("digest", value) for value in ("a" * 63, "a" * 65, "A" * 64, "a" * 64 + "\n", "g" * 64, 1, None)),
        *(("nonce", value) for value in ("b" * 31, "b" * 33, "B" * 32)),
        *(("name", value) for value in ("", "x" * 257, 1)),
        *(("count", value) for value in (-1, 2**63, 10**400, 1.5, 1.0, "1", True, None)),
        *(("seconds", value) for value in (-1, 2**60, float("nan"), float("inf"), "1", True)),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_not_repeated(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field) as caught:
        Sample.parse(encode(**{field: value}))
    assert len(caught.value.message) < 400
    assert "x" * 257 not in caught.value.message


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="surprise"):
        Sample.parse(encode(surprise=1))
    with pytest.raises(InputError) as caught:
        Sample.parse(encode(**{"y" * 900: 1}))
    assert len(caught.value.message) < 400


class Told(TellingBody):
    count: Count = 0


def test_a_body_that_tells_keeps_and_sends_on_what_it_does_not_know() -> None:
    told = Told.parse(encode(count=1, surprise={"a": [1]}))
    assert told.count == 1
    assert json.loads(told.encode()) == {"count": 1, "surprise": {"a": [1]}}
    with pytest.raises(InputError, match="count"):
        Told.parse(encode(count=-1, surprise=1))
    with pytest.raises(InputError, match="larger"):
        Told.parse(encode(surprise="x" * 65536))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 1000, b'{"count":1', b'{"count":NaN}'])
def test_what_is_not_such_json_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="Sample"):
        Sample.parse(data)


def test_a_body_over_its_limit_is_not_even_read() -> None:
    with pytest.raises(InputError, match="larger than 1024"):
        Sample.parse(b" " * 1025)
    assert Sample.parse(Sample().encode().ljust(1024)) == Sample()
