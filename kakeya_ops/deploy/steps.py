"""The changes that make a host what it shall be, apart from program and model."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from kakeya_ops.deploy.context import HostContext
from kakeya_ops.deploy.desired import ABOUT, PLIST
from kakeya_ops.deploy.errors import DeployError, NotHealthy, ServiceError
from kakeya_ops.deploy.guard import arm
from kakeya_ops.deploy.health import Exchange, wait_healthy
from kakeya_ops.deploy.leftovers import end_leftovers
from kakeya_ops.deploy.remote_files import make_folder, make_folders, point, point_all, remove, write_reversibly
from kakeya_ops.deploy.restoring import note_running_service, note_service, write_plist
from kakeya_ops.deploy.service import ServiceControl
from kakeya_ops.errors import IdentityMismatch, PeerError
from kakeya_ops.kv.identity import CacheIdentity
from kakeya_ops.launchd import Domain
from kakeya_ops.observe.http import read_reply
from kakeya_ops.observe.node import Asker
from kakeya_ops.secret import Secret
from kakeya_ops.wire.cards import Card


@dataclass(frozen=True)
class MakeFolders:
    """The folders that everything else lies in."""

    @property
    def title(self) -> str:
        """See `Step`."""
        return "create the install root"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        places = context.places
        ours = (places.root, places.logs, f"{places.root}/generations")
        key = (places.key.rpartition("/")[0],) if places.key else ()
        make_folders(context, {**dict.fromkeys((*ours, *key), "700"), places.agents: "755"})


@dataclass(frozen=True)
class WriteKey:
    """The fleet key, readable by its owner alone."""

    key: Secret

    @property
    def title(self) -> str:
        """See `Step`."""
        return "write the fleet key (mode 0600)"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        assert context.places.key is not None
        note_running_service(context)
        write_reversibly(context, context.places.key, self.key.reveal().hex().encode() + b"\n", 0o600)


@dataclass(frozen=True)
class WriteIdentity:
    """The planned cache identity, beside the key."""

    document: bytes

    @property
    def title(self) -> str:
        """See `Step`."""
        return "write the identity document"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        note_running_service(context)
        write_reversibly(context, context.places.identity, self.document, 0o644)


@dataclass(frozen=True)
class WriteGeneration:
    """A generation's folder: the inventory it is served from, its property list, and what returning to it needs."""

    generation: str
    program: str
    files: tuple[tuple[str, bytes], ...]

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"write generation {self.generation}"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        folder = context.places.generation(self.generation)
        if self.generation not in (context.before.generation, context.before.previous):
            context.undo(f"generation {self.generation}", lambda: remove(context, folder))
        make_folder(context, folder, "700")
        for name, data in self.files:
            context.runner.write(f"{folder}/{name}", data, 0o600)
        # Hosts without plutil are no Macs; what it would find, launchd would too.
        lint = context.runner.run(["plutil", "-lint", f"{folder}/{PLIST}"])
        if lint.status not in (0, 126, 127):
            raise DeployError(context.host.name, "plutil -lint on the host refuses the property list")


@dataclass(frozen=True)
class StopService:
    """Unload the service from every domain that it is loaded in, and wait until launchd has let go of it.

    If another is started afterwards (`exchanged`), the host watches over it until then.
    """

    domains: tuple[Domain, ...]
    exchanged: bool = False

    @property
    def title(self) -> str:
        """See `Step`."""
        return (
            f"stop the service in {' and '.join(domain.target for domain in self.domains)} (bootout, wait until gone)"
        )

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        job = context.before.job
        guarded = self.exchanged and job is not None and context.before.plist is not None
        if guarded:
            _refuse_link(context)
        note_service(context)
        if guarded and job is not None:
            context.guard = arm(context.runner, context.places, job.domain, context.timing.silence)
        for domain in self.domains:
            ServiceControl(context, domain).stop()
        end_leftovers(context)


@dataclass(frozen=True)
class WritePlist:
    """The property list where launchd finds it at the next login."""

    plist: bytes

    @property
    def title(self) -> str:
        """See `Step`."""
        return "write the property list"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        note_service(context)
        write_plist(context, self.plist)


@dataclass(frozen=True)
class StartService:
    """Load the service and see that it lives."""

    domain: Domain

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"start the service in {self.domain.target} (enable, bootstrap)"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        note_service(context)
        ServiceControl(context, self.domain).start(context.places.plist)
        if not context.stand_down():
            silence = f"{context.timing.silence:.0f} s"
            raise ServiceError(
                context.host.name, f"the host heard nothing for {silence} and took the old service back itself"
            )


@dataclass(frozen=True)
class WaitHealthy:
    """The node answers, and says that it can do its work."""

    domain: Domain

    @property
    def title(self) -> str:
        """See `Step`."""
        return "wait until it is healthy"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        wait_healthy(context, self.domain)


@dataclass(frozen=True)
class CheckCard:
    """The node's card carries the planned cache identity."""

    identity: CacheIdentity
    asker: Asker
    domain: Domain

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"check its card: cache identity {self.identity.digest[:12]}"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        found = wait_healthy(context, self.domain, self.asker)
        if found.card is not None:
            check_identity(self.identity, self._read(context, found.card))

    def _read(self, context: HostContext, card: Exchange) -> Card:
        request, result = card
        try:
            return read_reply(request, Card, result.status, result.stdout)
        except PeerError as error:
            raise NotHealthy(context.host.name, f"its card cannot be read: {error.message}") from error


@dataclass(frozen=True)
class KeepGeneration:
    """The generation that was just proved becomes the current one; the one before it is kept, older ones go."""

    generation: str

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"keep generation {self.generation} as the current one"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        places, before = context.places, context.before
        previous = before.previous if before.generation == self.generation else before.generation
        note_links(context)
        # The one before it first: an interruption between the two leaves a current generation that is whole.
        links = {places.previous: previous, places.current: self.generation}
        point_all(context, {link: f"generations/{id}" for link, id in links.items() if id is not None})
        remove_unused(context, {self.generation, previous})


def _refuse_link(context: HostContext) -> None:
    """Raise `DeployError` for a property list that is a link: launchd may not load it again once it is unloaded."""
    found = context.runner.stat(context.places.plist)
    if found is not None and found.kind == "symlink":
        path = context.places.plist
        raise DeployError(
            context.host.name,
            f"{path} is a symbolic link",
            hint=f"on the host, replace it by a file: {path}",
        )


def check_identity(planned: CacheIdentity, card: Card) -> None:
    """Raise `IdentityMismatch`, naming the first field that differs, unless `card` has the planned identity."""
    if card.identity == planned.digest:
        return
    field: tuple[str, object, object] | None = None
    if card.identity_document is not None:
        try:
            field = planned.first_difference(CacheIdentity.from_json(card.identity_document))
        except (KeyError, TypeError, ValueError):
            field = None
    raise IdentityMismatch(*(field or ("identity", planned.digest[:12], str(card.identity)[:12])), peer=card.node)


def note_links(context: HostContext) -> None:
    """Note how the links to the generations are brought back."""
    places, before = context.places, context.before

    def restore() -> None:
        for link, id in ((places.current, before.generation), (places.previous, before.previous)):
            if id is None:
                remove(context, link)
            else:
                point(context, link, f"generations/{id}")

    context.undo("the current generation", restore)


def remove_unused(context: HostContext, kept: Collection[str | None]) -> None:
    """Remove the generations that are not `kept`, and the programs that no kept generation runs."""
    runner, places = context.runner, context.places
    found = runner.listdir(f"{places.root}/generations") or ()
    programs = {_program_of(runner.read(f"{places.generation(id)}/{ABOUT}")) for id in found if id in kept}
    unused = [places.generation(id) for id in found if id not in kept]
    if unused and None not in programs:
        unused += [places.program(id) for id in runner.listdir(f"{places.root}/programs") or () if id not in programs]
    if unused:
        remove(context, *unused)


def _program_of(about: bytes | None) -> str | None:
    try:
        return str(json.loads(about or b"")["program"])
    except (ValueError, KeyError, TypeError):
        return None


__all__ = [
    "CheckCard",
    "KeepGeneration",
    "MakeFolders",
    "StartService",
    "StopService",
    "WaitHealthy",
    "WriteGeneration",
    "WriteIdentity",
    "WriteKey",
    "WritePlist",
    "check_identity",
    "note_links",
    "remove_unused",
]
