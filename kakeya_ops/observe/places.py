"""Where everything of one service lies on its host: absolute paths, made in one place."""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.launchd import service_label


def on_host(path: str, home: str) -> str:
    """`path` with ``~`` as `home`, the user's home folder on the host."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path


@dataclass(frozen=True)
class Places:
    """The paths of one service on its host. `key` is None in a fleet without one."""

    label: str
    home: str
    root: str
    key: str | None
    model: str

    @classmethod
    def of(cls, inventory: Inventory, host: ResolvedHost, home: str) -> Places:
        """The places of `host`, whose user's home folder is `home`."""
        key = inventory.fleet.key_file
        return cls(
            label=service_label(inventory.fleet.name, host.name),
            home=home,
            root=on_host(host.install_root, home).rstrip("/"),
            key=None if key is None else on_host(key, home),
            model=on_host(inventory.model.path, home),
        )

    @property
    def plist(self) -> str:
        """The property list that launchd loads at login."""
        return f"{self.agents}/{self.label}.plist"

    @property
    def agents(self) -> str:
        """The user's folder of agents, which a fresh account lacks."""
        return f"{self.home}/Library/LaunchAgents"

    @property
    def identity(self) -> str:
        """The identity document: beside the key, where a cache peer looks for it."""
        return f"{self.key}.identity.json" if self.key else f"{self.root}/identity.json"

    @property
    def lock(self) -> str:
        """The folder that whoever changes this host holds."""
        return f"{self.root}/lock"

    @property
    def audit(self) -> str:
        """What was done to this host, a line for each action."""
        return f"{self.root}/audit.jsonl"

    @property
    def logs(self) -> str:
        """The folder of logs."""
        return f"{self.root}/logs"

    @property
    def log(self) -> str:
        """What the service writes."""
        return f"{self.logs}/{self.label}.log"

    @property
    def current(self) -> str:
        """A link to the generation that was proved last."""
        return f"{self.root}/current"

    @property
    def previous(self) -> str:
        """A link to the generation before it."""
        return f"{self.root}/previous"

    def generation(self, id: str) -> str:
        """The folder of a generation: its inventory and its property list."""
        return f"{self.root}/generations/{id}"

    def program(self, id: str) -> str:
        """The folder of a program, which several generations may share."""
        return f"{self.root}/programs/{id}"


__all__ = ["Places", "on_host"]
