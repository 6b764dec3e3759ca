"""Replaces the fleet key on every host while the fleet serves.

Three passes, each over all hosts before the next begins: every node accepts both keys; every node signs with the new
one; the old one is dropped. A node reads its key files when it starts, so each pass restarts it, and a signed request
proves what the pass was for. A pass changes a host by writing one file, so that a host is always in one of the states
below, and whoever goes on after an interruption finds out in which:

===========  ===================  ===========================
state        key file holds       file beside it (`.also`)
===========  ===================  ===========================
``OLD``      the old key          is not there
``ACCEPTS``  the old key          both
``SIGNS``    the new key          both
``DONE``     the new key          is not there
===========  ===================  ===========================

What both keys are is kept in a file of this machine until all is done. Where the fleet has certificates, its authority
is replaced in the same passes: see `certificate_rotation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from kakeya_ops.deploy.actions import Actions
from kakeya_ops.deploy.apply import HostResult
from kakeya_ops.deploy.certificate_rotation import Authorities, PendingAuthorities
from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.deploy.health import ask
from kakeya_ops.deploy.hosts import Hosts
from kakeya_ops.deploy.plan import HostPlan, Plan, make_plan
from kakeya_ops.deploy.remote_files import remove, restoring, write_reversibly
from kakeya_ops.deploy.restoring import note_service
from kakeya_ops.errors import InputError, KakeyaError, PeerError, PeerRefused, PeerUnreachable
from kakeya_ops.inventory import Inventory
from kakeya_ops.observe.http import read_reply
from kakeya_ops.observe.node import Asker, usable_endpoints
from kakeya_ops.observe.state import HostState
from kakeya_ops.remote.local_runner import LocalRunner
from kakeya_ops.secret import Secret, key_lines, new_fleet_key, read_fleet_key, read_keys
from kakeya_ops.settings import expand_here
from kakeya_ops.wire.cards import Card

KEY_MODE = 0o600
_UNAUTHORIZED = 401
_ALSO = ".also"


class State(IntEnum):
    """How far a host is; a pass brings all hosts to one of these."""

    OLD = 0
    ACCEPTS = 1
    SIGNS = 2
    DONE = 3


PASSES = (State.ACCEPTS, State.SIGNS, State.DONE)
_TITLES = {
    State.ACCEPTS: "accept the new fleet key besides the old one",
    State.SIGNS: "sign with the new fleet key",
    State.DONE: "drop the old fleet key",
}


@dataclass(frozen=True)
class Keys:
    """The key that is replaced, and the one that replaces it; likewise `authorities` in a fleet with certificates."""

    old: Secret
    new: Secret
    authorities: Authorities | None = None

    def files(self, state: State) -> tuple[bytes, bytes | None]:
        """What the key file and the file beside it hold in `state`."""
        first = self.old if state < State.SIGNS else self.new
        return key_lines(first), key_lines(self.new, self.old) if state in (State.ACCEPTS, State.SIGNS) else None

    def found_in(self, found: HostState, key: bytes | None, also: bytes | None) -> State:
        """The state of a host with these key files and its certificates. Raises `DeployError` as `state_of` does."""
        state = self.state_of(found.host, key, also)
        return state if self.authorities is None else State(min(state, self.authorities.state_of(found.authorities)))

    def state_of(self, host: str, key: bytes | None, also: bytes | None) -> State:
        """The state of a host with these files. Raises `DeployError` for a key that is neither of the two."""
        for state in State:
            if self.files(state) == (key, also):
                return state
        if key == key_lines(self.old):  # with something beside it that an abandoned rotation left
            return State.OLD
        if key == key_lines(self.new):
            return State.ACCEPTS
        raise DeployError(
            host,
            "its fleet key is neither the one that is being replaced nor the new one",
            hint=f"kakeya deploy {host} writes the key of this machine; then go on with kakeya key rotate",
        )


class Pending:
    """The file of this machine that remembers both keys from before the first change until after the last one."""

    def __init__(self, key_file: Path, certificates: PendingAuthorities | None = None) -> None:
        self.key_file = key_file
        self.certificates = certificates
        self.path = Path(f"{key_file}.rotation")
        self._here = LocalRunner("this machine")

    @classmethod
    def of(cls, inventory: Inventory) -> Pending:
        """That of the inventory's fleet. Raises `InputError` for a fleet without a key."""
        if inventory.fleet.key_file is None:
            raise InputError("the fleet has no key to be replaced", hint="set fleet.key_file, then: kakeya key new")
        return cls(Path(expand_here(inventory.fleet.key_file)), PendingAuthorities.of(inventory))

    @property
    def exists(self) -> bool:
        """Whether a rotation was begun and not ended."""
        return self.path.exists()

    def begin(self) -> Keys:
        """The keys of the rotation that is under way, or of a new one. Raises `InputError`, `RemoteError`."""
        if not self.exists:
            if self.certificates is not None:
                self.certificates.end()  # of a rotation that ended just before it could
            authorities = self._begin_authorities()
            keys = Keys(read_fleet_key(self.key_file), new_fleet_key(), authorities)
            self._write(self.path, key_lines(keys.new, keys.old))
            return keys
        found = read_keys(self.path)
        if len(found) != 2:
            raise InputError(f"{self.path} does not hold the two keys of a rotation", hint="remove it to begin anew")
        return Keys(old=found[1], new=found[0], authorities=self._begin_authorities())

    def adopt(self, keys: Keys) -> None:
        """This machine signs with the new key from now on."""
        if read_fleet_key(self.key_file) != keys.new:
            self._write(self.key_file, key_lines(keys.new))
        if self.certificates is not None and keys.authorities is not None:
            self.certificates.adopt(keys.authorities)

    def end(self) -> None:
        """Forget the old key."""
        self.path.unlink(missing_ok=True)
        if self.certificates is not None:
            self.certificates.end()

    def _begin_authorities(self) -> Authorities | None:
        return None if self.certificates is None else self.certificates.begin()

    def _write(self, path: Path, data: bytes) -> None:
        self._here.write(str(path.absolute()), data, KEY_MODE)


def refuse_during_rotation(inventory: Inventory) -> None:
    """Raise `InputError` while a rotation is under way: what writes one key to hosts would undo it."""
    if inventory.fleet.key_file is not None and Pending.of(inventory).exists:
        raise InputError("the fleet key is being replaced", hint="go on with: kakeya key rotate")


@dataclass(frozen=True)
class WriteKeys:
    """Bring the key files of a host to a state."""

    keys: Keys
    state: State

    @property
    def title(self) -> str:
        """See `Step`."""
        return _TITLES[self.state]

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        assert context.places.key is not None
        note_service(context)  # so that it is started again after the files are as they were
        if self.keys.authorities is not None:
            self.keys.authorities.write(context, self.state)
        key, also = self.keys.files(self.state)
        beside = f"{context.places.key}{_ALSO}"
        if also is not None:
            write_reversibly(context, beside, also, KEY_MODE)
        write_reversibly(context, context.places.key, key, KEY_MODE)
        if also is None:
            context.undo(f"write {beside}", restoring(context, beside, context.runner.read(beside), KEY_MODE))
            remove(context, beside)


@dataclass(frozen=True)
class CheckKeys:
    """The running node takes a request signed with the new key; after the last pass it refuses the old one."""

    keys: Keys
    state: State
    tenant: str

    @property
    def title(self) -> str:
        """See `Step`."""
        return "prove it by a signed request"

    def apply(self, context: HostContext) -> None:
        """See `Step`."""
        if ask_card(context, Asker(self.keys.new, self.tenant)) is None:
            context.tell("it has no endpoint for peers, so that nothing can be asked of it")
            return
        if self.state is State.DONE and not self._is_refused(context, Asker(self.keys.old, self.tenant)):
            raise DeployError(context.host.name, "it still takes requests signed with the old key")

    def _is_refused(self, context: HostContext, asker: Asker) -> bool:
        try:
            ask_card(context, asker)
        except PeerRefused as error:
            return error.status == _UNAUTHORIZED
        return False


def ask_card(context: HostContext, asker: Asker) -> Card | None:
    """The card of the node, asked on its host; None if it has no endpoint. Raises `PeerError`."""
    unreachable: PeerError | None = None
    for endpoint in usable_endpoints(context.host):
        request = asker.card_request(context.host.name, endpoint)
        result = ask(context, request)
        try:
            return read_reply(request, Card, result.status, result.stdout)
        except PeerUnreachable as error:
            unreachable = error
    if unreachable is not None:
        raise unreachable
    return None


@dataclass(frozen=True)
class Pass:
    """What became of the hosts in the pass to `state`."""

    state: State
    results: Sequence[HostResult]

    @property
    def title(self) -> str:
        """What the pass was for."""
        return _TITLES[self.state]

    @property
    def good(self) -> bool:
        """Whether every host has come to the state."""
        return all(result.good for result in self.results)


@dataclass(frozen=True)
class Rotation:
    """One run of `kakeya key rotate`; `apply` carries a plan out."""

    hosts: Hosts
    pending: Pending
    keys: Keys
    apply: Callable[[Plan], Sequence[HostResult]]

    def run(self) -> Iterable[Pass]:
        """The passes, each when it is over; ends with one that is not good, to be gone on with by another run.

        Raises `KakeyaError` before a pass if a host cannot be asked or has a foreign key: nobody must be left behind.
        """
        for state in PASSES:
            plan = self.plan(state)
            for error in plan.failures.values():
                raise error
            done = Pass(state, self.apply(plan))
            yield done
            if not done.good:
                return
            if state is State.SIGNS:
                self.pending.adopt(self.keys)
                self.hosts.asker = Asker(self.keys.new, self.hosts.inventory.fleet.tenant)
        self.pending.end()

    def plan(self, state: State) -> Plan:
        """What brings the hosts to `state` that are not there yet."""
        plans: list[HostPlan] = []
        failures: dict[str, KakeyaError] = {}
        for name, found in self.hosts.observe(self.hosts.inventory.hosts).items():
            try:
                if isinstance(found, KakeyaError):
                    raise found
                plans.append(self._plan_host(name, found, state))
            except KakeyaError as error:
                failures[name] = error
        return make_plan(plans, failures)

    def _plan_host(self, name: str, found: HostState, state: State) -> HostPlan:
        places, runner = self.hosts.places(name), self.hosts.runner(name)
        assert places.key is not None
        context = HostContext(self.hosts.inventory.host(name), runner, places, found)
        idle = HostPlan(context.host, found, places, found.generation, ())
        key, also = runner.read(places.key), runner.read(f"{places.key}{_ALSO}")
        if key is None and found.plist is None:
            return idle  # deploy has not been here yet
        now = self.keys.found_in(found, key, also)
        check = CheckKeys(self.keys, state, self.hosts.inventory.fleet.tenant)
        if now > state or (now == state and self._is_proved(context, check)):
            return idle
        steps: tuple[Step, ...] = (WriteKeys(self.keys, state),)
        if found.job is not None:
            restart = Actions(self.hosts.inventory, self.hosts.asker, self.hosts.runner).restart(name, found)
            steps = (*steps, *restart.steps, check)
        return HostPlan(context.host, found, places, found.generation, steps)

    def _is_proved(self, context: HostContext, check: CheckKeys) -> bool:
        """Whether the running node has read the files as they are: an earlier run may have ended before its restart."""
        if context.before.job is None:
            return True
        assert context.places.key is not None
        try:
            check.apply(context)
            card = ask_card(context, Asker(self.keys.new, check.tenant))
        except (PeerError, DeployError):
            return False
        written = context.runner.stat(context.places.key)
        # Both times are of the host's own clock.
        return card is not None and written is not None and card.epoch // 10**9 > written.mtime_seconds


__all__ = [
    "KEY_MODE",
    "PASSES",
    "CheckKeys",
    "Keys",
    "Pass",
    "Pending",
    "Rotation",
    "State",
    "WriteKeys",
    "ask_card",
    "refuse_during_rotation",
]
