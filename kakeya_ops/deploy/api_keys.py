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
from kakeya_ops.observe.places import on_host

# ls shows what a link leads to with -L; its letters are the same everywhere, the options of stat are not.
_LOOK = '[ -f "$1" ] || exit 44; [ -O "$1" ] && [ -r "$1" ] && LC_ALL=C ls -ldL "$1"'
_ABSENT = 44
_FOR_OTHERS = slice(4, 10)


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
        host = context.host.name
        found = context.runner.run(["/bin/sh", "-c", _LOOK, "sh", on_host(self.path, context.places.home)])
        name = f"hosts.{host}.api.keys_file"
        if found.status == _ABSENT:
            hint = f"write one line for each, <key>: <tenant>, to {self.path} on {host}, then: chmod 600 {self.path}"
            raise DeployError(host, f"{name} names {self.path}, and there is no such file on the host", hint=hint)
        if found.status != 0 or set(found.text[_FOR_OTHERS]) != {"-"}:
            raise DeployError(
                host,
                f"{name} names {self.path}, which is not its user's alone to read",
                hint=f"on {host}, as the user of the service: chmod 600 {self.path}",
            )


def api_keys_steps(host: ResolvedHost) -> tuple[Step, ...]:
    """What is to be looked at before `host` is changed; nothing for a host that asks for no API keys."""
    path = host.api.keys_file if host.api is not None else None
    return () if path is None else (CheckApiKeys(path),)


__all__ = ["CheckApiKeys", "api_keys_steps"]
