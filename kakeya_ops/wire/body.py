"""What all JSON bodies of the peer protocol have in common: exact types, bounded size, and how unknown fields fare.

A body that asks for something refuses a field that it does not know: a newer release may mean another thing by the
same request. A body that only tells something keeps it, passes it on, and pays it no heed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kakeya_ops import __version__
from kakeya_ops.errors import InputError

HexDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
"""A SHA-256 in lower-case hexadecimal: a block hash, an identity's digest."""
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\z")]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0, lt=2**53)]


class WireBody(BaseModel):
    """A body that is read with `parse` and written with `encode`, and is never larger than `limit_bytes`.

    It refuses unknown fields by name.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    limit_bytes: ClassVar[int] = 64 * 1024

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The body in `data`. Raises `InputError`, naming the first field that is wrong."""
        if len(data) > cls.limit_bytes:
            raise InputError(f"{cls.__name__} of {len(data)} bytes is larger than {cls.limit_bytes}")
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            raise InputError(describe_fault(cls.__name__, error)) from None

    def encode(self) -> bytes:
        """The body as UTF-8 JSON."""
        return self.model_dump_json().encode()

    def to_json(self) -> dict[str, Any]:
        """The body as a plain value, such as `wire.signing.sign_document` takes."""
        return self.model_dump(mode="json")


class TellingBody(WireBody):
    """A body that only tells: fields that a newer release has added are kept as they came, and sent on as such."""

    model_config = ConfigDict(extra="allow")


def describe_fault(body: str, error: ValidationError) -> str:
    """The first fault of a `body`, by the name of its field, and without the value."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(step)[:64] for step in first["loc"][:8])
    if first["type"] == "extra_forbidden":
        return f"{body} has a field that release {__version__} does not know: {place}"
    return f"{body}{f' has a wrong {place}' if place else ' is wrong'}: {first['msg'][:200]}"


__all__ = ["Count", "HexDigest", "Name", "Nonce", "Seconds", "TellingBody", "WireBody", "describe_fault"]
