"""The few kinds of element that the page is made of. Text given to them is shown as text, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Words(TextElement):
    """An element with one text."""

    def __init__(self, tag: str, text: str = "", classes: str = "", **attributes: str) -> None:
        super().__init__(tag=tag, text=text)
        decorate(self, classes, attributes)

    def say(self, text: str) -> None:
        """Show `text` from now on; nothing is sent when that is so already."""
        if self.text != text:
            self.text = text


class Box(Element):
    """An element with others in it."""

    def __init__(self, tag: str, classes: str = "", **attributes: str) -> None:
        super().__init__(tag)
        decorate(self, classes, attributes)


def decorate(element: Element, classes: str, attributes: dict[str, str]) -> None:
    """Give `element` classes and attributes; in the names of these ``_`` stands for ``-``."""
    element.classes(classes)
    for name, value in attributes.items():
        attribute(element, name.strip("_").replace("_", "-"), value)


def attribute(element: Element, name: str, value: str) -> None:
    """Set an attribute to any text; nothing is sent when it has that already."""
    if element.props.get(name) != value:
        element.props[name] = value
        element.update()


def mark(element: Element, state: str) -> None:
    """Set ``data-state``, by which the style sheet colours."""
    attribute(element, "data-state", state)


class Row(Protocol[T_contra]):
    """A part of the page that shows one value after another."""

    def show(self, value: T_contra) -> None:
        """Show `value`."""

    def delete(self) -> None:
        """Leave the page."""


class Rows(Generic[T]):
    """As many rows within `parent` as there are values."""

    def __init__(self, parent: Element, make: Callable[[], Row[T]]) -> None:
        self._parent = parent
        self._make = make
        self._rows: list[Row[T]] = []

    def show(self, values: Sequence[T]) -> None:
        """Show `values` in their order."""
        while len(self._rows) > len(values):
            self._rows.pop().delete()
        with self._parent:
            while len(self._rows) < len(values):
                self._rows.append(self._make())
        for row, value in zip(self._rows, values, strict=True):
            row.show(value)


class Table:
    """A table of texts with a caption; the first cell of a row is its heading."""

    def __init__(self, caption: str, headings: Sequence[str], classes: str = "") -> None:
        with Box("div", f"scroll {classes}", tabindex="0", role="region", aria_label=caption), Box("table"):
            Words("caption", caption, "unseen")
            with Box("thead"), Box("tr"):
                for number, heading in enumerate(headings):
                    Words("th", heading, "" if number else "first", scope="col")
            self.body = Box("tbody")


class Cells:
    """A row of a `Table` with `count` cells."""

    def __init__(self, count: int) -> None:
        self._row = Box("tr")
        with self._row:
            self.cells = [Words("th", scope="row", classes="first"), *(Words("td") for _ in range(count - 1))]

    def show(self, value: Sequence[str]) -> None:
        """See `Row`."""
        for cell, text in zip(self.cells, value, strict=True):
            cell.say(text)

    def delete(self) -> None:
        """See `Row`."""
        self._row.delete()


class Section:
    """A part of the page with a heading of its own; more is put into `body`."""

    def __init__(self, name: str, title: str, classes: str = "") -> None:
        self.body = Box("section", classes, id=name, aria_labelledby=f"{name}-title")
        with self.body, Box("div", "section-head"):
            Words("h2", title, id=f"{name}-title")
            self.note = Words("span", "", "note")


__all__ = ["Box", "Cells", "Row", "Rows", "Section", "Table", "Words", "attribute", "decorate", "mark"]
