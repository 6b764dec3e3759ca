"""The order that releases a node from a head's quarantine, which only a holder of the fleet key can give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field

from kakeya_ops.secret import Secret
from kakeya_ops.wire.body import Name, Seconds, WireBody
from kakeya_ops.wire.nonces import NonceBook
from kakeya_ops.wire.signing import new_nonce, sign_document, verify_document

MOST_REASON_CHARACTERS = 500
PURPOSE = "release"
"""Under which an order is signed, see `sign_document`."""
RELEASE_PATH = "/v1/network/quarantine/release"
"""Of the head's API."""


class ReleaseOrder(WireBody):
    """``POST /v1/network/quarantine/release``: let the head called `head` ask `node` again.

    Good once, within the window around the Unix time `signed_at`, and at no other head.
    """

    head: Name
    node: Name
    reason: Annotated[str, Field(min_length=1, max_length=MOST_REASON_CHARACTERS)]
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    signed_at: Seconds
    mac: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @classmethod
    def sign(cls, key: Secret, names: tuple[str, str], reason: str, now: float) -> Self:
        """The order of a holder of `key` at Unix time `now`; `names` are the head's and the node's.

        Raises `ValidationError` for a name or a reason that is empty or too long.
        """
        head, node = names
        said = {"head": head, "node": node, "reason": reason, "nonce": new_nonce(), "signed_at": now}
        return cls.model_validate(said | {"mac": sign_document(key, PURPOSE, said)})

    def verify(self, keys: Sequence[Secret], nonces: NonceBook, now: float) -> None:
        """Raise `SignatureRejected` unless one of `keys` signed exactly this, lately, and it was not given before."""
        verify_document(keys, PURPOSE, self.to_json(), self.mac)
        nonces.admit(self.mac, self.signed_at, now)


__all__ = ["MOST_REASON_CHARACTERS", "PURPOSE", "RELEASE_PATH", "ReleaseOrder"]
