"""The secrets that a fleet begins with, made on the operator's machine."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path

from kakeya_ops.certificates.authority import write_authority
from kakeya_ops.certificates.places import authority_path
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.secret import write_fleet_key


@dataclass(frozen=True)
class Made:
    """What was made; None for what was there already."""

    key_file: Path | None
    authority: Path | None


def make_secrets(key_file: Path, fleet: str) -> Made:
    """Make what lacks of the key at `key_file` and the authority beside it, both for their owner alone.

    Nothing is ever replaced. Raises `EnvironmentFault` where nothing lacks, or a file cannot be written.
    """
    authority = authority_path(key_file)
    lacks_key, lacks_authority = not key_file.exists(), not authority.exists()
    if not lacks_key and not lacks_authority:
        raise EnvironmentFault(
            f"fleet key {key_file} exists, and so does its authority; neither is ever replaced by itself",
            hint="to replace both on all hosts: kakeya key rotate",
        )
    if lacks_key:
        write_fleet_key(key_file)
    if lacks_authority:
        write_authority(authority, fleet, datetime.datetime.now(datetime.UTC))
    return Made(key_file if lacks_key else None, authority if lacks_authority else None)


__all__ = ["Made", "make_secrets"]
