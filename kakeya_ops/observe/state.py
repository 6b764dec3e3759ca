"""What was found on one host. A fact that could not be had is `Unknown` with the reason, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from kakeya_ops.launchd import Domain, ServiceState
from kakeya_ops.memory.host import HostMemory
from kakeya_ops.wire.cards import Card

T = TypeVar("T")


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be had, and why."""

    reason: str

    def __str__(self) -> str:
        return f"unknown ({self.reason})"


Fact: TypeAlias = T | Unknown
"""A value, or the reason why there is none. None as the value means that the thing is not there."""


@dataclass(frozen=True)
class Python:
    """An interpreter on the host."""

    path: str
    version: tuple[int, int]


@dataclass(frozen=True)
class KeyFile:
    """The fleet key's file: its permission bits, and the SHA-256 digest of its content in hexadecimal."""

    mode: int
    digest: str


@dataclass(frozen=True)
class ApiKeysFile:
    """The file of API keys; `private` is whether it is its user's, who can read it, and nobody else can."""

    private: bool


@dataclass(frozen=True)
class CertificateFile:
    """The node's certificate: the permission bits of its file, and the certificate in it without its key, as PEM."""

    mode: int
    pem: bytes


@dataclass(frozen=True)
class Job:
    """A job that is loaded in `domain`, as launchd tells of it."""

    domain: Domain
    service: ServiceState


@dataclass(frozen=True)
class Health:
    """The answer of ``/healthz``; `reason` is the node's own when it is not healthy."""

    healthy: bool
    reason: str | None = None


@dataclass(frozen=True)
class ModelFacts:
    """The files of the model directory as ``{relative path: (size in bytes, modification time in seconds)}``.

    `record` is what deploy wrote down when it last checked their contents; None when it never did.
    """

    files: Mapping[str, tuple[int, int]]
    record: bytes | None


@dataclass(frozen=True)
class HostState:
    """One host as it is now. `domains` are the launchd domains of the user that exist.

    `lock` is what its holder wrote, empty when it wrote nothing yet, None when nobody holds it. `served` is the
    inventory that the current generation is served from. `authorities` are the certificates of those whose certificates
    the node accepts.
    """

    host: str
    user: str
    uid: int
    home: str
    domains: tuple[Domain, ...]
    macos: Fact[str]
    chip: Fact[str]
    memory: HostMemory
    disk_free_bytes: Fact[int]
    python: Fact[Python | None]
    console_uid: Fact[int]
    jobs: Fact[tuple[Job, ...]]
    disabled: Fact[bool]
    plist: bytes | None
    generation: str | None
    previous: str | None
    programs: frozenset[str]
    key: Fact[KeyFile | None]
    identity: bytes | None
    model: Fact[ModelFacts | None]
    lock: bytes | None
    health: Fact[Health | None]
    card: Fact[Card]
    served: bytes | None = None
    api_keys: Fact[ApiKeysFile | None] = Unknown("the host asks for no API keys")
    authorities: bytes | None = None
    certificate: Fact[CertificateFile | None] = None

    @property
    def job(self) -> Job | None:
        """The job that is loaded, in whichever domain; None when there is none or it is not known."""
        jobs = () if isinstance(self.jobs, Unknown) else self.jobs
        return jobs[0] if jobs else None

    @property
    def running(self) -> bool:
        """Whether a process of the service is alive."""
        return self.job is not None and self.job.service.running


__all__ = [
    "ApiKeysFile",
    "CertificateFile",
    "Fact",
    "Health",
    "HostState",
    "Job",
    "KeyFile",
    "ModelFacts",
    "Python",
    "Unknown",
]
