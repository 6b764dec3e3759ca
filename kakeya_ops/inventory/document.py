"""A YAML document as plain values that remember their lines. Nothing here knows what an inventory is.

Only what plain values need is understood: no tags, no merge keys. Anchors may be used; size, depth and the number of
values (aliases counted each time they are used) are bounded, so no document can take long or grow large.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from kakeya_ops.errors import Fault
from kakeya_ops.inventory.findings import Location, render_location

MAX_DOCUMENT_BYTES = 256 * 1024
MAX_VALUES = 10_000
MAX_DEPTH = 32
MAX_SCALAR_CHARACTERS = 1024

_CONVERTED = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float"))


@dataclass(frozen=True)
class Document:
    """Plain `value` (dict with str keys, tuple, str, int, float, bool, None) and `faults` of the form alone."""

    value: Any
    lines: Mapping[Location, int]
    faults: tuple[Fault, ...]

    def line(self, location: Location) -> int | None:
        """1-based line of `location`, or of the nearest thing around it that the document has."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location)


def parse_document(text: str) -> Document:
    """The one document in `text`; when its form is broken, `value` is None and `faults` say where."""
    try:
        loader = _BoundedLoader(text)
    except yaml.reader.ReaderError as error:
        return _broken(text.count("\n", 0, error.position) + 1, f"has a control character, U+{error.character:04X}")
    try:
        node = loader.get_single_node()
        return _Conversion(loader).run(node) if node is not None else _broken(None, "is empty")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        return _broken(None if mark is None else mark.line + 1, message)
    except (ValueError, OverflowError):
        return _broken(loader.line + 1, "has an escape that stands for no character")
    finally:
        loader.dispose()


def _broken(line: int | None, message: str) -> Document:
    return Document(None, {}, (Fault("", line, message),))


class _BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, up to its nodes, refusing what is too deep, too much or tagged while it reads."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]  # its stubs lack types
        self._depth += 1
        self._nodes += 1
        if self._depth > MAX_DEPTH:
            raise _refusal("is nested too deeply here", event)
        if self._nodes > MAX_VALUES:
            raise _refusal("has too many values", event)
        if getattr(event, "tag", None) not in (None, "!"):
            raise _refusal("uses a YAML tag, which has no meaning here", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


@dataclass
class _Conversion:
    """Turns nodes into values, noting lines and faults."""

    loader: _BoundedLoader
    lines: dict[Location, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def run(self, node: yaml.Node) -> Document:
        value = self._value(node, ())
        return Document(value, self.lines, tuple(self.faults))

    def _value(self, node: yaml.Node, location: Location) -> Any:
        self.lines.setdefault(location, node.start_mark.line + 1)
        if len(self.lines) > MAX_VALUES or len(location) > MAX_DEPTH:
            raise _refusal("has aliases that repeat too much", node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, location)
        if isinstance(node, yaml.SequenceNode):
            return tuple(self._value(child, (*location, index)) for index, child in enumerate(node.value))
        return self._scalar(node, location)

    def _mapping(self, node: yaml.MappingNode, location: Location) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = _text(key_node.value) if isinstance(key_node, yaml.ScalarNode) else None
            if key is None or not key_node.tag.endswith((":str", ":merge")):
                self._fault(location, line, f"the key {key or 'here'} is not text; put it in quotes")
            elif key in mapping:
                self._fault((*location, key), line, f"is given twice, first in line {self.lines[*location, key]}")
            else:
                self.lines[*location, key] = line
                mapping[key] = self._value(value_node, (*location, key))
        return mapping

    def _scalar(self, node: yaml.Node, location: Location) -> Any:
        if len(node.value) > MAX_SCALAR_CHARACTERS:
            self._fault(location, node.start_mark.line + 1, f"is longer than {MAX_SCALAR_CHARACTERS} characters")
            return ""
        if node.tag not in _CONVERTED:
            return _text(node.value)
        try:
            return self.loader.construct_object(node)
        except (ValueError, OverflowError):
            self._fault(location, node.start_mark.line + 1, f"{node.value[:60]} is not a number")
            return None

    def _fault(self, location: Location, line: int, message: str) -> None:
        self.faults.append(Fault(render_location(location), line, message))


def _refusal(problem: str, at: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=cast(yaml.Mark, at.start_mark))


def _text(value: str) -> str:
    """`value` short enough for a message, and without the lone surrogates that YAML's escapes can write."""
    return value[:MAX_SCALAR_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


__all__ = ["MAX_DEPTH", "MAX_DOCUMENT_BYTES", "MAX_SCALAR_CHARACTERS", "MAX_VALUES", "Document", "parse_document"]
