"""From a YAML file to an `Inventory`, or to every fault at once with its path and line."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from kakeya_ops.errors import Fault, InputError, InventoryError
from kakeya_ops.inventory.cross import Parts, find_contradictions
from kakeya_ops.inventory.document import MAX_DOCUMENT_BYTES, Document, parse_document
from kakeya_ops.inventory.findings import FINDINGS, Finding, render_location
from kakeya_ops.inventory.models import Inventory
from kakeya_ops.inventory.sections import Fleet, Host, Section
from kakeya_ops.inventory.sentences import describe_error
from kakeya_ops.settings import inventory_from_environment, usual_inventories

_S = TypeVar("_S", bound=Section)


def find_inventory(option: Path | None = None) -> Path:
    """The inventory to use: `option`, ``$KAKEYA_INVENTORY``, ``./inventory.yaml``, then the user's own folder.

    A file that was named is returned as it is; raises `InputError` if none was named and none is found.
    """
    if named := option or inventory_from_environment():
        return named
    usual = usual_inventories()
    for path in usual:
        if path.is_file():
            return path
    raise InputError(
        f"no inventory found: neither ./{usual[0]} nor {usual[1]} exists",
        hint="name one with --inventory FILE or in $KAKEYA_INVENTORY",
    )


def load_inventory(path: Path) -> Inventory:
    """The inventory in `path`. Raises `InputError` if it cannot be read, `InventoryError` with every fault in it.

    A pipe or a device is refused, as it may be waited at for ever, unless this process was given it to read:
    ``/dev/stdin``, or ``/dev/fd/63`` as shells write a command's output.
    """
    try:
        if stat.S_ISREG(path.stat().st_mode) or path.is_dir() or _was_given(path):
            with path.open("rb") as file:
                return parse_inventory(file.read(MAX_DOCUMENT_BYTES + 1), str(path))
        raise InputError(f"inventory {path} is not a regular file", hint="name another with --inventory FILE")
    except FileNotFoundError:
        raise InputError(f"inventory {path} does not exist", hint="name another with --inventory FILE") from None
    except OSError as error:
        raise InputError(f"inventory {path} cannot be read: {error.strerror}") from error


def _was_given(path: Path) -> bool:
    return path == Path("/dev/stdin") or path.parent in (Path("/dev/fd"), Path("/proc/self/fd"))


def parse_inventory(data: bytes, file: str) -> Inventory:
    """The inventory in the UTF-8 YAML `data`; `file` names it in errors.

    Raises `InventoryError` with every fault. Time and memory are bounded whatever `data` is.
    """
    if len(data) > MAX_DOCUMENT_BYTES:
        raise InventoryError(file, (Fault("", None, f"is larger than {MAX_DOCUMENT_BYTES // 1024} KiB"),))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InventoryError(file, (Fault("", line, "is not UTF-8 text"),)) from None
    return _validate(parse_document(text), file)


def _validate(document: Document, file: str) -> Inventory:
    faults = list(document.faults)
    if document.value is not None:
        try:
            inventory = Inventory.model_validate(document.value)
        except ValidationError as error:
            found = list(_findings(error))
            if not any(finding.location == () for finding in found):
                found += find_contradictions(_parts(document.value))
            known = {fault.path for fault in faults}
            faults += (fault for fault in _located(found, document) if fault.path not in known)
        else:
            if not faults:
                return inventory
    raise InventoryError(file, tuple(sorted(faults, key=lambda fault: fault.line or 0)))


def _findings(error: ValidationError) -> Iterator[Finding]:
    """What pydantic found, in our words. A contradiction within a section comes as one error with several findings."""
    for detail in error.errors(include_url=False):
        location = tuple(step for step in detail["loc"] if step != "[key]")
        if detail["type"] == FINDINGS:
            for finding in detail["ctx"][FINDINGS]:
                yield Finding((*location, *finding.location), finding.message)
        elif message := describe_error(detail, location):
            yield Finding(location, message)


def _located(findings: Iterable[Finding], document: Document) -> Iterator[Fault]:
    for location, message in dict.fromkeys(findings):
        yield Fault(render_location(location), document.line(location), message)


def _parts(value: dict[str, Any]) -> Parts:
    """The sections that have no fault of their own, so that faults between them are told in the same run."""
    hosts = _mapping(value.get("hosts"))
    understood = {name: host for name, raw in hosts.items() if (host := _section(Host, raw)) is not None}
    groups = {
        name: tuple(member for member in members if isinstance(member, str))
        for name, members in _mapping(value.get("groups")).items()
        if isinstance(members, tuple)
    }
    return Parts(_section(Fleet, value.get("fleet")), understood, frozenset(hosts), groups)


def _section(kind: type[_S], raw: object) -> _S | None:
    try:
        return kind.model_validate(raw)
    except ValidationError:
        return None


def _mapping(raw: object) -> dict[str, Any]:
    return raw if isinstance(raw, dict) else {}


__all__ = ["find_inventory", "load_inventory", "parse_inventory"]
