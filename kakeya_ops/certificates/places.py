"""Where the files lie that TLS needs: all beside the fleet key, and named after it."""

from __future__ import annotations

from pathlib import Path


def authority_path(key_file: Path) -> Path:
    """Where the operator's machine keeps the authority: beside the fleet key at `key_file`."""
    return Path(f"{key_file}.authority.pem")


def authorities_path(key_file: str | Path) -> Path:
    """The certificates of the authorities that a node accepts: two while the fleet's is being replaced."""
    return Path(f"{key_file}.ca.pem")


def certificate_path(key_file: str | Path) -> Path:
    """A node's key with its certificate, in one file, so that they can never differ."""
    return Path(f"{key_file}.cert.pem")


__all__ = ["authorities_path", "authority_path", "certificate_path"]
