from __future__ import annotations

from kakeya_ops.certificates.names import dns_name, uri


def test_a_node_has_one_name_for_tls_and_one_for_people() -> None:
    assert (dns_name("allens"), uri("allens")) == ("allens.kakeya.internal", "kakeya:node:allens")
