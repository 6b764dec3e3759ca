from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kakeya_ops.inventory import document
from kakeya_ops.inventory.document import MAX_DEPTH, MAX_SCALAR_CHARACTERS, MAX_VALUES, parse_document

# Line separators and control characters are left out: PyYAML itself writes some of them as what it reads differently.
TEXT = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=40)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: as_tuples(inner) for key, inner in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


@given(VALUES)
def test_plain_values_come_back_as_they_were_written(value: Any) -> None:
    parsed = parse_document(yaml.safe_dump(value, allow_unicode=True))
    assert parsed.faults == ()
    assert parsed.value == as_tuples(value)


@given(st.text(max_size=300) | st.text(alphabet="[]{}:,-&*!? \n'\"#|>%@a0.\\xuU", max_size=80))
def test_no_text_is_too_strange(text: str) -> None:
    parsed = parse_document(text)
    assert parsed.faults or parsed.lines


def test_lines_are_those_of_the_key_or_the_item() -> None:
    parsed = parse_document("# first\na:\n  b: 1\n  c:\n    - x\n    - {d:\n        4}\n")
    assert parsed.value == {"a": {"b": 1, "c": ("x", {"d": 4})}}
    assert [parsed.line(place) for place in (("a",), ("a", "b"), ("a", "c", 1), ("a", "c", 1, "d"))] == [2, 3, 6, 6]
    assert parsed.line(("a", "c", 7, "nothing")) == 4
    assert parsed.line(("z",)) == 2


def test_keys_given_twice_are_all_told() -> None:
    parsed = parse_document("a: 1\nb: {c: 1,\n c: 2}\na: 3\n")
    assert [(fault.path, fault.line, fault.message) for fault in parsed.faults] == [
        ("b.c", 3, "is given twice, first in line 2"),
        ("a", 4, "is given twice, first in line 1"),
    ]
    assert parsed.value == {"a": 1, "b": {"c": 1}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("a: !!python/object:os.system x", "uses a YAML tag"),
        ("a: !!int 3", "uses a YAML tag"),
        ("8080: x", "the key 8080 is not text"),
        ("? [a]\n: x", "the key here is not text"),
        ("a: 0b_", "is not a number"),
        ("a: 1\n b: 2", "mapping values are not allowed here"),
        ("a: [1", "expected ',' or ']'"),
        ("a: *nothing", "undefined alias"),
        ("a: 1\n---\nb: 1", "but found another document"),
        ('a: "\\UFFFFFFFF"', "has an escape that stands for no character"),
        ("a: \x01", "has a control character, U+0001"),
        ("[" * (MAX_DEPTH + 1), "is nested too deeply here"),
        ("[" * 100_000, "is nested too deeply here"),
        ("- x\n" * (MAX_VALUES + 1), "has too many values"),
        ("&a [*a]", "has aliases that repeat too much"),
        ("a: " + "x" * (MAX_SCALAR_CHARACTERS + 1), "is longer than"),
        ("a: 0x" + "f" * (MAX_SCALAR_CHARACTERS + 1), "is longer than"),
    ],
)
def test_broken_form_is_told(text: str, message: str) -> None:
    assert message in parse_document(text).faults[0].message


def test_aliases_work_but_not_as_a_bomb() -> None:
    assert parse_document("a: &x {b: 1}\nc: *x").value == {"a": {"b": 1}, "c": {"b": 1}}
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(12))
    started = time.monotonic()
    assert "aliases that repeat too much" in parse_document(bomb).faults[0].message
    assert time.monotonic() - started < 5


def test_the_largest_document_is_read_in_bounded_time() -> None:
    line = "a{}: {{b: [x, y], c: 'text'}}\n"
    text = "".join(line.format(n) for n in range(document.MAX_DOCUMENT_BYTES // len(line)))
    started = time.monotonic()
    assert "too many values" in parse_document(text).faults[0].message
    assert time.monotonic() - started < 20


def test_text_that_no_terminal_could_print_is_replaced() -> None:
    assert parse_document('"a\\uD800": "b\\uDFFF"').value == {"a?": "b?"}
