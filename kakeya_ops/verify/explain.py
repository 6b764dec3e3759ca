"""One request explained: its receipt with the steps that it tells of, and whether the fleet's key signed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, Literal

from pydantic import ValidationError

from kakeya_ops.errors import PeerRefused, RefusedError, SignatureRejected
from kakeya_ops.secret import Secret
from kakeya_ops.serving.receipts import PURPOSE, Receipt
from kakeya_ops.serving.timeline import Span, explain_gain, timeline
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.wire.bodies import WorkerReceipt
from kakeya_ops.wire.signing import verify_document

SealVerdict = Literal["valid", "wrong", "unsigned", "unchecked"]


@dataclass(frozen=True)
class Seal:
    """Whether `whose` receipt is signed by the fleet; `detail` says what is wrong, or missing to tell."""

    whose: str
    verdict: SealVerdict
    detail: str


@dataclass(frozen=True)
class Explanation:
    """A request's receipt, its `digest`, the steps in their order, the gain in a sentence, and the signatures."""

    receipt: Receipt
    digest: str
    spans: tuple[Span, ...]
    gain: str
    seals: tuple[Seal, ...]

    @property
    def trustworthy(self) -> bool:
        """False when a signature is not the fleet's: then nothing of this needs to be true."""
        return all(seal.verdict != "wrong" for seal in self.seals)

    def to_json(self) -> dict[str, Any]:
        """A plain value for ``--json``."""
        return {
            "request_id": self.receipt.request_id,
            "gain": self.gain,
            "trustworthy": self.trustworthy,
            "signatures": [asdict(seal) for seal in self.seals],
            "timeline": [span.to_json() for span in self.spans],
            "digest": self.digest,
            "receipt": self.receipt.to_json(),
        }


def explain(client: HeadClient, request_id: str, keys: Sequence[Secret], without_keys: str) -> Explanation:
    """Fetch and explain the receipt of `request_id`. `without_keys` is why no signature can be checked, if none can.

    Raises `RefusedError` when the head keeps no such receipt, and `PeerError` when it does not answer as it should.
    """
    receipt = _fetch(client, request_id)
    seals = [_check(receipt.node, receipt.mac, lambda: _verify_head(receipt, keys), keys, without_keys)]
    if receipt.remote and (document := receipt.remote.worker_receipt):
        mac = str(document.get("mac", ""))
        seals.append(_check(receipt.remote.node, mac, lambda: _verify_worker(document, keys), keys, without_keys))
    return Explanation(receipt, receipt.digest, timeline(receipt), explain_gain(receipt), tuple(seals))


def _fetch(client: HeadClient, request_id: str) -> Receipt:
    try:
        document = client.receipt(request_id)
        return Receipt.from_json(document)
    except PeerRefused as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise RefusedError(
            f"{client.url} keeps no receipt of request {request_id[:80]}",
            hint="the id is in the answer's X-Request-Id; only the last requests of one's own API key are told",
        ) from error
    except ValueError as error:
        raise PeerRefused(client.url, 200, "malformed", "what it keeps of this request is no receipt") from error


def _check(whose: str, mac: str, verify: Callable[[], None], keys: Sequence[Secret], without_keys: str) -> Seal:
    if not mac:
        return Seal(whose, "wrong" if keys else "unsigned", "it bears no signature")
    if not keys:
        return Seal(whose, "unchecked", without_keys)
    try:
        verify()
    except (SignatureRejected, ValidationError):
        return Seal(whose, "wrong", "the fleet's key did not sign this")
    return Seal(whose, "valid", "signed with the fleet's key")


def _verify_head(receipt: Receipt, keys: Sequence[Secret]) -> None:
    verify_document(keys, PURPOSE, receipt.to_json(), receipt.mac)


def _verify_worker(document: dict[str, Any], keys: Sequence[Secret]) -> None:
    WorkerReceipt.model_validate(document).verify(keys)


__all__ = ["Explanation", "Seal", "SealVerdict", "explain"]
