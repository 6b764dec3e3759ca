"""From a few names to an inventory and a fleet key: reads every Mac, measures, proposes, writes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kakeya_ops.certificates.founding import make_secrets
from kakeya_ops.certificates.places import authority_path
from kakeya_ops.errors import EnvironmentFault, InputError, KakeyaError
from kakeya_ops.founding.lines import Line, measure_line
from kakeya_ops.founding.newcomer import Invitation, Newcomer, read_newcomer
from kakeya_ops.founding.proposal import Choices, Proposal, propose
from kakeya_ops.memory.assessment import Model, read_model
from kakeya_ops.observe.fanout import run_on
from kakeya_ops.remote.runner import Runner
from kakeya_ops.settings import expand_here

_PARALLEL = 8


@dataclass(frozen=True)
class Founding:
    """`open_runner` connects to a Mac; `tell` is given a line for each thing that could not be found out."""

    open_runner: Callable[[Invitation], Runner]
    tell: Callable[[str], None]

    def propose(self, invitations: Sequence[Invitation], choices: Choices, *, measure: bool = True) -> Proposal:
        """Read every Mac at once and propose a fleet. Raises the first error of a Mac that cannot be read."""
        by_name = {invitation.name: invitation for invitation in invitations}
        if len(by_name) != len(invitations):
            raise InputError("two hosts have the same name", hint="write NAME=SSH for one of them")
        runners = {name: self.open_runner(invitation) for name, invitation in by_name.items()}
        try:
            read = run_on(by_name, lambda name: read_newcomer(runners[name], by_name[name]), _PARALLEL)
            proposal = propose([_whole(one) for one in read.values()], choices, self._model(choices))
            return replace(proposal, lines=self._measure(runners, proposal)) if measure else proposal
        finally:
            for runner in runners.values():
                runner.close()

    def _model(self, choices: Choices) -> Model | None:
        try:
            return read_model(expand_here(choices.model_path))
        except KakeyaError as error:
            self.tell(f"roles are not judged by memory: {error.message}")
            return None

    def _measure(self, runners: Mapping[str, Runner], proposal: Proposal) -> dict[str, list[Line]]:
        """The lines from the head to every other Mac, one after the other, so that none disturbs another."""
        head = proposal.choices.head
        return {
            member.newcomer.name: [
                measure_line(runners[head], runners[member.newcomer.name], str(endpoint["address"]))
                for endpoint in member.endpoints
            ]
            for member in proposal.members
            if member.newcomer.name != head
        }


def _whole(one: Newcomer | KakeyaError) -> Newcomer:
    if isinstance(one, KakeyaError):
        raise one
    return one


def write_inventory(path: Path, text: str) -> None:
    """Write a new inventory, whole or not at all. Never replaces a file: raises `InputError` if there is one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        os.link(part, path)
    except FileExistsError:
        raise InputError(f"{path} exists, and is never overwritten", hint="name another file with --output") from None
    except OSError as error:
        raise EnvironmentFault(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def make_key(key_file: str, fleet: str) -> bool:
    """Make what lacks of the fleet key and the authority of its certificates; whether anything did.

    Raises `EnvironmentFault`.
    """
    path = expand_here(key_file)
    if path.exists() and authority_path(path).exists():
        return False
    make_secrets(path, fleet)
    return True


__all__ = ["Founding", "make_key", "write_inventory"]
