"""Certificates for a node that no deploy reaches: files that a person carries to where the node is served."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kakeya_ops.certificates.authority import Authority
from kakeya_ops.certificates.places import authorities_path, certificate_path
from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.secret import replace_secret, write_new_secret


@dataclass(frozen=True)
class Handed:
    """The two files of one node, which belong beside its fleet key, under their names."""

    authorities: Path
    certificate: Path


def hand_out(
    authority: Authority, node: str, addresses: Sequence[str], key_file: Path, *, replace: bool = False
) -> Handed:
    """Issue a certificate for `node` at `addresses`; both files get names and folder of the fleet key at `key_file`.

    They are for their owner alone, and each is written whole or not at all. Raises `EnvironmentFault` where one cannot
    be written, or, unless they may be replaced, where a certificate or another authority is there already.
    """
    files = Handed(authorities_path(key_file), certificate_path(key_file))
    issued = authority.issue(node, addresses, datetime.datetime.now(datetime.UTC))
    try:
        known = files.authorities.read_bytes() if files.authorities.exists() else None
        if not replace:
            _refuse_to_replace(files, authority, known)
        write = replace_secret if replace else write_new_secret
        if known != authority.pem:
            write(files.authorities, authority.pem)
        write(files.certificate, issued)
    except OSError as error:
        raise EnvironmentFault(f"cannot write the certificate of {node}: {error.strerror}: {error.filename}") from error
    return files


def _refuse_to_replace(files: Handed, authority: Authority, known: bytes | None) -> None:
    if known not in (None, authority.pem):
        raise EnvironmentFault(f"{files.authorities} is of another authority", hint=_HINT)
    if files.certificate.exists():
        raise EnvironmentFault(f"certificate {files.certificate} exists", hint=_HINT)


_HINT = "to write over it: --replace"

__all__ = ["Handed", "hand_out"]
