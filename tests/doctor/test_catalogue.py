"""The topics: each has a code that can stand in an address, and says why it matters."""

from __future__ import annotations

import re

import pytest

from kakeya_ops.doctor.catalogue import TOPICS, Code


@pytest.mark.parametrize("code", TOPICS)
def test_a_code_is_an_anchor_and_its_topic_says_why(code: Code) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", code)
    assert TOPICS[code].why.endswith(".")
    assert not TOPICS[code].title.endswith(".")
