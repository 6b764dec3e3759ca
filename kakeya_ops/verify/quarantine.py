"""A head's quarantine as an operator sees it from elsewhere: who is held and why, and their release."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kakeya_ops.errors import InputError, PeerRefused, RefusedError
from kakeya_ops.secret import Secret
from kakeya_ops.serving.quarantine import Held
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.wire.releases import RELEASE_PATH, ReleaseOrder

PATH = "/v1/network/quarantine"
_HELD = TypeAdapter(Held)


@dataclass(frozen=True)
class Listing:
    """Whom `head` asks no more, and whom it was told to ask again, the last ones last."""

    head: str
    held: tuple[Held, ...]
    released: tuple[Held, ...]

    def to_json(self) -> dict[str, Any]:
        """A plain value."""
        held, released = ([one.to_json() for one in some] for some in (self.held, self.released))
        return {"head": self.head, "held": held, "released": released}


def read_quarantine(client: HeadClient) -> Listing:
    """What the head says. Raises `PeerError` when it does not answer as it should."""
    document = client.document(PATH)
    try:
        held, released = (tuple(map(_HELD.validate_python, document[name])) for name in ("held", "released"))
        return Listing(str(document["head"]), held, released)
    except (KeyError, TypeError, ValidationError) as error:
        raise PeerRefused(client.url, 200, "malformed", "what it says of its quarantine cannot be read") from error


def release(
    client: HeadClient, keys: Sequence[Secret], node: str, reason: str, clock: Callable[[], float] = time.time
) -> Held:
    """Have the head ask `node` again; what it was held for.

    `keys` are the fleet's, newest first; a head that does not know that one yet is asked with the next. Raises
    `RefusedError` when the node is not held, `InputError` for a reason that is none, and `PeerError` when the head does
    not answer as it should.
    """
    head = read_quarantine(client).head
    for key in keys[:-1]:
        try:
            return _order(client, _sign(key, (head, node), reason, clock()))
        except PeerRefused as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
    return _order(client, _sign(keys[-1], (head, node), reason, clock()))


def _sign(key: Secret, names: tuple[str, str], reason: str, now: float) -> ReleaseOrder:
    try:
        return ReleaseOrder.sign(key, names, reason, now)
    except ValidationError:
        raise InputError("a release needs the name of a node, and a reason of one to 500 characters") from None


def _order(client: HeadClient, order: ReleaseOrder) -> Held:
    try:
        return _HELD.validate_python(client.post(RELEASE_PATH, order.encode()))
    except ValidationError as error:
        raise PeerRefused(client.url, 200, "malformed", "its answer to the release cannot be read") from error
    except PeerRefused as error:
        if error.status != HTTPStatus.NOT_FOUND or error.code != "not_found":
            raise
        raise RefusedError(
            f"{order.node[:80]!r} is not in the quarantine of {order.head}", hint="kakeya quarantine list shows who is"
        ) from error


__all__ = ["PATH", "Listing", "read_quarantine", "release"]
