from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest

from kakeya_ops.drill.catalogue import Intrusion
from kakeya_ops.drill.intruding import intrude, secured_way
from kakeya_ops.drill.nodes import Operator
from kakeya_ops.errors import PeerUnreachable
from kakeya_ops.peer.connection import Endpoint
from kakeya_ops.secret import Secret
from serving.running import KEY, TENANT, Served, make_cache
from trust import TlsEndpoint, certificates, tls_served

OWN = certificates("drill")
OPERATOR = Operator(KEY, TENANT, OWN)


@pytest.fixture(scope="module")
def secured() -> Iterator[Served]:
    with tls_served(make_cache(), certificates("cache")) as served:
        yield served


@pytest.mark.parametrize(
    ("intrusion", "said"),
    [
        ("in clear", "this port speaks TLS only"),
        ("with a stranger's certificate", "does not know the authority of this node's certificate"),
    ],
)
def test_an_intruder_is_refused_with_words(secured: Served, intrusion: Intrusion, said: str) -> None:
    found = intrude("cache", TlsEndpoint("127.0.0.1", secured.port), OPERATOR, intrusion)
    assert said in (found or "")


def test_a_node_that_answers_in_clear_has_let_the_intruder_in() -> None:
    with Served(make_cache()) as served:
        assert intrude("cache", TlsEndpoint("127.0.0.1", served.port), OPERATOR, "in clear") is None


def test_so_has_one_that_refuses_only_the_request() -> None:
    with Served(make_cache(keys=(Secret(b"another fleet's key, of 32 bytes"),))) as served:
        assert intrude("cache", TlsEndpoint("127.0.0.1", served.port), OPERATOR, "in clear") is None


def test_a_node_that_looks_at_no_certificate_has_let_the_intruder_in() -> None:
    careless = certificates("cache")
    careless.server.verify_mode = ssl.CERT_NONE
    with tls_served(make_cache(), careless) as served:
        way = TlsEndpoint("127.0.0.1", served.port)
        assert intrude("cache", way, OPERATOR, "with a stranger's certificate") is None
        assert intrude("cache", way, OPERATOR, "in clear") is not None


def test_a_node_that_is_not_there_has_refused_nobody() -> None:
    with pytest.raises(PeerUnreachable):
        intrude("cache", TlsEndpoint("127.0.0.1", 1), OPERATOR, "in clear")


def test_only_where_both_speak_tls_is_there_a_way_to_try() -> None:
    secured, clear = TlsEndpoint("127.0.0.1", 1), Endpoint("127.0.0.1", 2)
    assert secured_way([clear, secured], OPERATOR) is secured
    assert secured_way([clear], OPERATOR) is None
    assert secured_way([secured], Operator(KEY, TENANT)) is None
