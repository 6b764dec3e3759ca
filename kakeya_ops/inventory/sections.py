"""The sections of an inventory. The text below each field is its description in the schema and in the docs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kakeya_ops.inventory.fields import (
    GIGABYTE_BYTES,
    Address,
    BindAddress,
    BlockTokens,
    Gigabytes,
    HostPath,
    Label,
    Port,
    Text,
    VariableName,
    is_loopback,
    is_unspecified,
)
from kakeya_ops.inventory.findings import Finding, refuse

Role = Literal["head", "worker", "cache"]
Policy = Literal["measured", "prefer_remote", "local_only"]
Parity = Literal["exact", "close"]
PackingChoice = Literal["measured", "never"]


def _folder_name(values: dict[str, Any]) -> str:
    path = values.get("path", "")  # absent when it has a fault of its own
    return PurePosixPath(path).name or path


class Section(BaseModel):
    """What all sections have in common: frozen, no unknown keys, no value taken for another type.

    `contradictions` is what is wrong between fields that are each right.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )

    def contradictions(self) -> Iterator[Finding]:
        """Faults between the fields; locations are relative to this section."""
        return iter(())

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        refuse(self.contradictions())
        return self


class Fleet(Section):
    """The hosts as one thing: what they are called and which key they share."""

    name: Label
    """Name of the fleet; part of the names of its services."""
    tenant: Text = "private-fleet"
    """Whose prompts these are. It keys the block hashes, so one tenant never finds another's KV."""
    key_file: HostPath | None = "~/.kakeya/fleet.key"
    """File with the fleet key (mode 0600) on every host. null: unsigned, possible on loopback alone."""
    drill: bool = False
    """Whether `kakeya drill` may arm faults in the nodes, which are gone by themselves after seconds."""


class Model(Section):
    """The one model that the fleet serves."""

    path: HostPath
    """The MLX model directory, at the same place on head and workers."""
    id: Text = Field(default_factory=_folder_name)
    """Name of the model in the OpenAI API; default: the name of its folder."""
    sync: bool = False
    """Whether deploy copies the model to the hosts that lack it."""


class CacheSection(Section):
    """What KV is kept, and in what pieces. All but `pool_gb` and `replicas` is part of the cache identity."""

    sink: int = Field(default=4, ge=0, le=65536)
    """With a window: how many of the first tokens are never forgotten by full-attention layers."""
    window: int | None = Field(default=None, ge=1, le=2**24)
    """How many of the last tokens full-attention layers keep; null keeps the whole context. A window forgets."""
    block_tokens: BlockTokens = 64
    """Tokens of a block, and of a step of every prefill: a power of two from 16 to 512."""
    pool_gb: Gigabytes = 4.0
    """Memory for each node's pool of blocks, in GiB."""
    replicas: int = Field(default=1, ge=0, le=16)
    """In how many peers' pools a finished prefix is kept, besides the head's own; 0: nothing is sent to peers."""

    @property
    def pool_bytes(self) -> int:
        """`pool_gb` in bytes."""
        return int(self.pool_gb * GIGABYTE_BYTES)

    def contradictions(self) -> Iterator[Finding]:
        """A window must hold a block and the sinks."""
        if self.window is None:
            return
        if self.window < self.block_tokens:
            yield Finding(
                ("window",), f"must be null or at least block_tokens ({self.block_tokens}), not {self.window}"
            )
        if self.sink > self.window:
            yield Finding(("sink",), f"must not exceed the window ({self.window}), not {self.sink}")


class Prefill(Section):
    """When the head lets a worker compute a prompt's KV."""

    min_tokens: int = Field(default=128, ge=1, le=2**24)
    """Prompts shorter than this are always computed by the head itself."""
    policy: Policy = "measured"
    """measured: whatever costs least by measured rates; prefer_remote: a worker whenever one can; local_only: never."""
    parity: Parity = "exact"
    """exact: only peers whose arithmetic is equal; close: also those that passed a parity run within its tolerance."""
    answers: bool = True
    """Prefill finished answers too, by an idle worker or head, so that the next turn of a conversation finds them."""
    packing: PackingChoice = "measured"
    """measured: blocks travel packed, without loss, where the rate of a link says that it pays; never: as they are."""
    require_remote: bool = False
    """Answer 503 when the remote path fails, instead of computing locally."""
    grace_seconds: float = Field(default=15.0, ge=0, le=3600)
    """How long a prefill goes on whose client has left, for the case that it sends its request again; 0: not at all."""
    audit: float = Field(default=0.05, ge=0, le=1)
    """Which share of imported prefixes the head computes again while it is idle, to find a node whose KV is wrong;
    besides the first of each process of a node. 0: none at all."""

    def contradictions(self) -> Iterator[Finding]:
        """What may never be remote cannot be required to be."""
        if self.require_remote and self.policy == "local_only":
            yield Finding(("require_remote",), "cannot be true under policy: local_only, which never asks a peer")


class ModelServing(Section):
    """What the memory verdict reckons with."""

    context: int = Field(default=8192, ge=64, le=2**24)
    """Tokens of the longest conversation that must fit, prompt and answer together."""
    concurrency: int = Field(default=4, ge=1, le=256)
    """Conversations of that length that must fit at once."""


class MemorySection(Section):
    """Where the memory verdict draws its lines."""

    reserve_gb: Gigabytes | None = None
    """Memory of each host in GiB that is left to its system; null: 2, or an eighth of the host's memory if more."""
    tight_percent: float = Field(default=10.0, ge=0, le=90)
    """What fits with less than this share of a limit left is called tight."""
    keep_free_gb: Gigabytes | None = None
    """Memory in GiB below which a running node's pool gives way; null: a sixteenth of the host's memory, 1 at most."""

    @property
    def keep_free_bytes(self) -> int | None:
        """`keep_free_gb` in bytes, None for the default."""
        return None if self.keep_free_gb is None else int(self.keep_free_gb * GIGABYTE_BYTES)

    @property
    def reserve_bytes(self) -> int | None:
        """`reserve_gb` in bytes, None for the default."""
        return None if self.reserve_gb is None else int(self.reserve_gb * GIGABYTE_BYTES)


class SshDefaults(Section):
    """How hosts are reached to deploy to them; what is null here is what the user's own ssh configuration says."""

    user: Text | None = None
    """Login name; null: as ssh itself would choose."""
    port: Port | None = None
    """TCP port of the SSH server; null: as ssh itself would choose."""


class Ssh(SshDefaults):
    """How this host is reached to deploy to it."""

    host: Text | None = None
    """DNS name, address or ssh alias; null: the host's name in this inventory."""


class Api(Section):
    """Where the head serves the OpenAI API, the dashboard and metrics."""

    bind: BindAddress = "127.0.0.1"
    """Address to listen on; anything but loopback needs a `keys_file`."""
    port: Port = 8080
    """TCP port to listen on."""
    keys_file: HostPath | None = None
    """File with the API keys and the tenants they stand for, on the head itself: deploy looks for it and never
    copies it. null: no key is asked for, possible on loopback alone."""

    def contradictions(self) -> Iterator[Finding]:
        """An API that others can reach asks for a key."""
        if self.keys_file is None and not is_loopback(self.bind):
            message = f"must name a file: the API is bound to {self.bind}, where others can reach it"
            yield Finding(("keys_file",), message)


class Endpoint(Section):
    """One way to reach a node's peer port."""

    network: Text
    """Name of the network, for people: thunderbolt, lan, loopback."""
    address: Address
    """IP address or DNS name at which peers reach the node."""
    port: Port
    """TCP port of the node's peer server."""
    priority: int = Field(default=50, ge=0, le=1000)
    """Which endpoint is used until their speed is known, and of those that are about equally fast: the highest."""
    trusted: bool = False
    """Whether nobody else can listen on this network (a cable between two Macs), so that KV may go in clear. false:
    by TLS alone, with certificates that deploy installs; on loopback always in clear."""

    @property
    def in_clear(self) -> bool:
        """Whether prompt tokens and KV may cross this endpoint unencrypted."""
        return self.trusted or is_loopback(self.address)


class Defaults(Section):
    """What holds for every host that does not say otherwise: mappings merge key by key, lists are replaced."""

    ssh: SshDefaults = SshDefaults()
    """How hosts are reached to deploy to them."""
    install_root: HostPath = "~/.kakeya"
    """Folder for everything that Kakeya installs on the host."""
    python: HostPath | None = None
    """Interpreter that the services run in; null: the one that deploy installs."""
    domain: Literal["auto", "gui", "user"] = "auto"
    """launchd domain of the services: gui needs a logged-in user, user does not; auto chooses on the host."""
    prevent_sleep: bool = False
    """Keep the Mac awake while the service runs."""
    announce: bool = False
    """Announce the service on the local network through Bonjour."""
    queue: int = Field(default=16, ge=1, le=4096)
    """Requests or jobs that may wait at a node before it answers 503."""
    environment: dict[VariableName, str] = Field(default={})
    """Further environment variables of the services. No secrets here: a secret is a file."""


class Host(Defaults):
    """One machine and the node that runs on it; every key of `defaults` may be given here too."""

    role: Role
    """head: API and decoding; worker: computes KV and keeps it; cache: only keeps it, and has no model."""
    ssh: Ssh = Ssh()
    """How this host is reached to deploy to it."""
    memory_gb: Gigabytes | None = None
    """Memory of the machine in GiB, as Apple sells it; null: asked from the host."""
    pool_gb: Gigabytes | None = None
    """Memory for this node's pool of blocks in GiB; null: that of the cache section."""
    api: Api | None = None
    """Where the head serves the OpenAI API; a head must have it, nobody else may."""
    endpoints: tuple[Endpoint, ...] = Field(default=(), max_length=16)
    """The ways to reach this node's peer port; a worker or cache has at least one."""

    def contradictions(self) -> Iterator[Finding]:
        """Each role has what it needs, and no port is used twice."""
        if self.role == "head" and self.api is None:
            yield Finding(("api",), "is missing: a head serves the API")
        if self.role != "head" and self.api is not None:
            yield Finding(("api",), f"only a head serves the API, and this host is a {self.role}")
        if self.role != "head" and not self.endpoints:
            yield Finding(("endpoints",), f"a {self.role} must have at least one, or nobody can reach it")
        for index, endpoint in enumerate(self.endpoints):
            if self.api is not None and _collide(self.api, endpoint):
                message = f"{endpoint.port} is already the API's port at {self.api.bind}"
                yield Finding(("endpoints", index, "port"), message)


def _collide(api: Api, endpoint: Endpoint) -> bool:
    return api.port == endpoint.port and (is_unspecified(api.bind) or api.bind == endpoint.address)


__all__ = [
    "Api",
    "CacheSection",
    "Defaults",
    "Endpoint",
    "Fleet",
    "Host",
    "MemorySection",
    "Model",
    "ModelServing",
    "PackingChoice",
    "Parity",
    "Policy",
    "Prefill",
    "Role",
    "Section",
    "Ssh",
    "SshDefaults",
]
