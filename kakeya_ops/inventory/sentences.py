"""Pydantic's errors as sentences for a person who writes YAML."""

from __future__ import annotations

from inspect import isclass
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from kakeya_ops.inventory.findings import Location
from kakeya_ops.inventory.models import Inventory
from kakeya_ops.spelling import did_you_mean

_SENTENCES = {
    "bool_type": "must be true or false, not {input}",
    "dict_type": "must be a mapping (key: value), not {input}",
    "finite_number": "must be a finite number, not {input}",
    "float_type": "must be a number, not {input}",
    "greater_than": "must be greater than {gt}, not {input}",
    "greater_than_equal": "must be at least {ge}, not {input}",
    "int_type": "must be a whole number, not {input}",
    "less_than_equal": "must be at most {le}, not {input}",
    "literal_error": "must be {expected}, not {input}",
    "missing": "is missing",
    "model_type": "must be a mapping (key: value), not {input}",
    "string_pattern_mismatch": "must be one line of text",
    "string_too_long": "must not be longer than {max_length} characters",
    "string_too_short": "must not be empty",
    "string_type": "must be text, not {input}",
    "too_long": "must have at most {max_length} items, not {actual_length}",
    "too_short": "must not be empty",
    "tuple_type": "must be a list, not {input}",
    "value_error": "{error}",
}
_SILENT = "default_factory_not_called"
"""A default that could not be made because another field has a fault, which is told anyway."""


def describe_error(error: ErrorDetails, location: Location) -> str:
    """What is wrong at `location`, without naming the place; empty for a mere consequence of another error."""
    kind = error["type"]
    if kind == _SILENT:
        return ""
    if kind == "extra_forbidden":
        known = known_keys(location[:-1])
        return f"is not a known key{did_you_mean(str(location[-1]), known) or '; known are ' + ', '.join(known)}"
    template = _SENTENCES.get(kind)
    if template is None:
        return error["msg"]
    limits = {key: _plain(value) for key, value in error.get("ctx", {}).items()}
    return template.format(input=render_value(error["input"]), **limits)


def known_keys(location: Location) -> tuple[str, ...]:
    """The keys that a section at `location` may have; empty if there is none."""
    kind: Any = Inventory
    for step in location:
        kind = _inside(kind, step)
    return tuple(kind.model_fields) if _is_section(kind) else ()


def render_value(value: object) -> str:
    """`value` as it would stand in YAML, shortened."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | tuple):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _plain(value: object) -> object:
    """4096 rather than 4096.0, as people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _inside(kind: Any, step: str | int) -> Any:
    """The type of what `step` leads to: a field's, or that of a mapping's values or a list's items."""
    if not _is_section(kind):
        arguments = get_args(kind)
        return arguments[isinstance(step, str)] if len(arguments) > 1 else None
    field = kind.model_fields.get(step)
    if field is None or get_origin(field.annotation) not in (Union, UnionType):
        return field and field.annotation
    return get_args(field.annotation)[0]


def _is_section(kind: Any) -> bool:
    return isclass(kind) and issubclass(kind, BaseModel)


__all__ = ["describe_error", "known_keys", "render_value"]
