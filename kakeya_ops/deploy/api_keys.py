"""The API keys of a head: deploy looks whether they are there, and never carries them.

They are not the fleet's but the head's own, made where the head is and often changed without a deploy; a copy on every
operator's machine would be one more place to lose them from. A head does not start without its file, so a deploy that
would restart it says so before it touches anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.deploy.context import HostContext, Step
from kakeya_ops.deploy.errors import DeployError
from kakeya_ops.inventory import ResolvedHost
from kakeya_ops.observe.host import read_api_keys
from kakeya_ops.observe.places import on_host
from kakeya_ops.observe.script import FIND_KEYS
from kakeya_ops.observe.state import ApiKeysFile, HostState, Unknown


@dataclass(frozen=True)
class CheckApiKeys:
    """The file with the API keys is at `path` on the host, and its user's alone."""

    path: str

    @property
    def title(self) -> str:
        """See `Step`."""
        return f"look whether the API keys are in {self.path} (mode 0600)"

    def apply(self, context: HostContext) -> None:
        """See `Step`. Changes nothing."""
        path = on_host(self.path, context.places.home)
        found = context.runner.run(["/bin/sh", "-c", f"keys=$1; {FIND_KEYS}find_keys", "sh", path])
        _judge(context.host.name, self.path, read_api_keys(found.status, found.text))


def refuse_api_keys(host: ResolvedHost, state: HostState) -> None:
    """Raise `DeployError` where `host` asks for API keys and was seen to have no file of them that will do."""
    path = host.api.keys_file if host.api is not None else None
    if path is not None and not isinstance(state.api_keys, Unknown):
        _judge(host.name, path, state.api_keys)


def _judge(host: str, path: str, found: ApiKeysFile | None) -> None:
    name = f"hosts.{host}.api.keys_file"
    if found is None:
        hint = f"write one line for each, <key>: <tenant>, to {path} on {host}, then: chmod 600 {path}"
        raise DeployError(host, f"{name} names {path}, and there is no such file on the host", hint=hint)
    if not found.private:
        raise DeployError(
            host,
            f"{name} names {path}, which is not its user's alone to read",
            hint=f"on {host}, as the user of the service: chmod 600 {path}",
        )


def api_keys_steps(host: ResolvedHost) -> tuple[Step, ...]:
    """What is to be looked at before `host` is changed; nothing for a host that asks for no API keys."""
    path = host.api.keys_file if host.api is not None else None
    return () if path is None else (CheckApiKeys(path),)


__all__ = ["CheckApiKeys", "api_keys_steps", "refuse_api_keys"]
