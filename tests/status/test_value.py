from __future__ import annotations

import json

import pytest

from status.samples import judged, silent, whole


def test_the_value_is_plain() -> None:
    status = judged(whole())
    document = json.loads(json.dumps(status.to_json()))
    assert document["serves"] is True
    assert [node["node"] for node in document["nodes"]] == ["head", "allens"]
    assert document["nodes"][1]["reaches"][0]["rtt_seconds"] == 0.0005


def test_a_node_is_found_by_its_name() -> None:
    status = judged(whole(allens=silent()))
    assert status.node("allens").state == "unreachable"
    with pytest.raises(KeyError):
        status.node("nobody")
