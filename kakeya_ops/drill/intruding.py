"""Callers that a node must not let in, where it speaks TLS: one in clear text, one with a stranger's certificate."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import replace

from kakeya_ops.certificates import Certificates
from kakeya_ops.certificates.authority import Authority
from kakeya_ops.certificates.material import caller_certificates
from kakeya_ops.drill.catalogue import Intrusion
from kakeya_ops.drill.nodes import NodeDoor, Operator
from kakeya_ops.errors import PeerRefused, TlsFailed
from kakeya_ops.peer.connection import Endpoint

_REFUSED_IN_CLEAR = "tls_required"


def secured_way(ways: Sequence[Endpoint], operator: Operator) -> Endpoint | None:
    """The first of `ways` that speaks TLS, if `operator` can speak it too."""
    return next((way for way in ways if way.tls), None) if operator.certificates else None


def intrude(node: str, way: Endpoint, operator: Operator, intrusion: Intrusion) -> str | None:
    """The words with which `node` refuses the intruder at `way`; None if it lets it in.

    Raises `PeerError` where neither becomes of it.
    """
    if intrusion == "in clear":
        way = Endpoint(way.address, way.port, way.network, in_clear=True)
    elif operator.certificates:
        operator = replace(operator, certificates=make_strange(operator.certificates))
    door = NodeDoor(node, [way], operator)
    try:
        door.card()
    except TlsFailed as error:
        return error.message
    except PeerRefused as error:
        # Any other answer comes from behind the door.
        return error.message if error.code == _REFUSED_IN_CLEAR else None
    finally:
        door.close()
    return None


def make_strange(certificates: Certificates) -> Certificates:
    """Those of a caller that accepts the same authorities, and was certified by another fleet's."""
    accepted = "".join(ssl.DER_cert_to_PEM_cert(one) for one in certificates.client.get_ca_certs(binary_form=True))
    stranger = Authority.new("strangers", datetime.datetime.now(datetime.UTC))
    return caller_certificates(stranger, "drill", accepted=accepted.encode())


__all__ = ["intrude", "make_strange", "secured_way"]
