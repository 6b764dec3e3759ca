"""Configuration keys: typed, or unknown by name; defaults that are told."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.errors import ExitCode, FootprintUnknown
from kakeya_ops.memory.config import Config

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def of(**values: Any) -> Config:
    return Config("llama", values)


def test_a_count_is_read_and_a_default_is_told_once() -> None:
    config = of(heads=4, nothing=None)
    assert config.count("heads") == 4
    assert config.count("nothing", 7, "as heads") == config.count("nothing", 7, "as heads") == 7
    assert config.notes == ["nothing is missing: 7, as heads"]


@pytest.mark.parametrize("value", [True, -1, 0, 2.5, "4", [4], 2**31])
def test_what_is_no_count_is_unknown(value: Any) -> None:
    with pytest.raises(FootprintUnknown, match=r"heads in its config\.json is") as raised:
        of(heads=value).count("heads")
    assert (raised.value.model, raised.value.exit_code) == ("llama", ExitCode.NO)


def test_a_missing_count_without_a_default_is_unknown_by_name() -> None:
    with pytest.raises(FootprintUnknown) as raised:
        of().count("heads")
    assert raised.value.missing == "its config.json does not say heads"
    assert raised.value.message == "how much memory llama takes is unknown: its config.json does not say heads"


def test_zero_is_a_value_where_it_is_allowed() -> None:
    assert (of(n=0).count_or_zero("n", 5), of(n=3).count_or_zero("n"), of().count_or_zero("n", 5)) == (0, 3, 5)


def test_flags_words_indices_and_sections() -> None:
    config = of(tied=True, types=["a", "b"], pattern="M*", at=[1, 3], inner={"heads": 2})
    assert config.flag("tied")
    assert not config.flag("absent")
    assert (config.words("types"), config.words("pattern"), config.words("absent")) == (("a", "b"), ("M", "*"), None)
    assert (config.indices("at"), config.indices("absent")) == (frozenset({1, 3}), None)
    inner = config.section("inner")
    assert inner is not None
    assert inner.notes is config.notes
    assert config.section("absent") is None


@given(value=json_values)
def test_any_json_is_read_or_unknown_and_never_another_error(value: Any) -> None:
    config = of(key=value)
    for read in (config.count, config.count_or_zero, config.flag, config.words, config.indices, config.section):
        with suppress(FootprintUnknown):
            read("key")
