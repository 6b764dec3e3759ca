from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kakeya_ops.errors import InputError, PeerRefused, RefusedError
from kakeya_ops.serving.quarantine import Held
from kakeya_ops.verify.head_client import HeadClient
from kakeya_ops.verify.quarantine import PATH, read_quarantine, release
from kakeya_ops.wire.releases import RELEASE_PATH
from serving.findings import EVIDENCE
from verify.samples import FOREIGN_KEY, KEY
from verify.scripted_head import ScriptedHead, serve

HELD = Held("allens", 1000.0, EVIDENCE)
FREED = replace(HELD, released_at=2000.0, release_reason="new memory")


def say(head: ScriptedHead, path: str, document: Any, status: int = 200) -> None:
    head.replies[path] = (status, json.dumps(document).encode())


def refuse(head: ScriptedHead, status: int, code: str) -> None:
    say(head, RELEASE_PATH, {"error": {"message": "no", "code": code}}, status)


@pytest.fixture
def head() -> ScriptedHead:
    head = ScriptedHead()
    say(head, PATH, {"head": "head", "held": [HELD.to_json()], "released": [FREED.to_json()]})
    say(head, RELEASE_PATH, FREED.to_json())
    return head


@pytest.fixture
def client(head: ScriptedHead) -> Iterator[HeadClient]:
    with serve(head, time.time) as url, HeadClient(url) as client:
        yield client


def test_what_the_head_says_is_read_whole(client: HeadClient) -> None:
    listing = read_quarantine(client)
    assert (listing.head, listing.held, listing.released) == ("head", (HELD,), (FREED,))
    assert listing.to_json()["held"][0]["evidence"]["request_id"] == EVIDENCE.request_id


def test_what_is_none_is_refused(head: ScriptedHead, client: HeadClient) -> None:
    say(head, PATH, {"head": "head", "held": [{"node": "allens"}], "released": []})
    with pytest.raises(PeerRefused, match="cannot be read"):
        read_quarantine(client)


def test_a_release_tells_what_the_node_was_held_for(head: ScriptedHead, client: HeadClient) -> None:
    assert release(client, [KEY], "allens", "new memory") == FREED
    say(head, RELEASE_PATH, {})
    with pytest.raises(PeerRefused, match="cannot be read"):
        release(client, [KEY], "allens", "new memory")


def test_who_is_not_held_is_a_no(head: ScriptedHead, client: HeadClient) -> None:
    refuse(head, 404, "not_found")
    with pytest.raises(RefusedError, match="'other' is not in the quarantine of head"):
        release(client, [KEY], "other", "why not")


def test_a_key_that_the_head_does_not_take_is_told(head: ScriptedHead, client: HeadClient) -> None:
    refuse(head, 403, "release_rejected")
    with pytest.raises(PeerRefused):
        release(client, [FOREIGN_KEY, KEY], "allens", "new memory")


def test_a_release_without_a_reason_is_not_sent(client: HeadClient) -> None:
    with pytest.raises(InputError, match="a reason"):
        release(client, [KEY], "allens", "")
