"""Every topic that the doctor knows, by its code. Codes are stable: scripts and the documentation refer to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Code = Literal[
    "ssh",
    "host-key",
    "system",
    "python",
    "disk",
    "model",
    "memory",
    "wired-limit",
    "other-servers",
    "key",
    "certificate",
    "api-keys",
    "clock",
    "service",
    "double-load",
    "session",
    "filevault",
    "sleep",
    "link",
    "route",
    "mtu",
    "firewall",
    "port",
    "process",
    "node-id",
    "version",
    "identity",
    "quarantine",
]


@dataclass(frozen=True)
class Topic:
    """What is looked at, in a few words, and why it matters."""

    title: str
    why: str


TOPICS: dict[Code, Topic] = {
    "ssh": Topic(
        "SSH and its configuration",
        "Everything that is installed or read on another host goes over SSH, as the user's own ssh configuration says.",
    ),
    "host-key": Topic(
        "SSH host key",
        "An unknown key has to be accepted once, by somebody who compares fingerprints. A changed one means another "
        "machine, or that this one was set up anew.",
    ),
    "system": Topic("macOS and chip", "The engine computes on Apple Silicon; elsewhere it works, slowly."),
    "python": Topic(
        "Python",
        "The program is installed into a venv of Python 3.11 or newer. /usr/bin/python3 of macOS is not one.",
    ),
    "disk": Topic("free disk", "The model, and the programs of two generations, have to fit."),
    "model": Topic(
        "model files",
        "Head and workers must have the very same model; its hashes are compared with those of this machine.",
    ),
    "memory": Topic(
        "memory verdict",
        "Whether the model fits before it is loaded; kakeya memory shows every term. deploy refuses what does not fit.",
    ),
    "wired-limit": Topic(
        "iogpu.wired_limit_mb",
        "How much memory the GPU may hold. Set by sysctl it is gone after a restart, and a model that needed it with "
        "it.",
    ),
    "other-servers": Topic(
        "other model servers",
        "Each of them takes up to three quarters of the memory for its GPU buffers; two on one Mac can bring it down.",
    ),
    "key": Topic(
        "fleet key",
        "All nodes sign with it, so all must have the same one, and nobody else may read it (mode 0600).",
    ),
    "certificate": Topic(
        "certificate",
        "An endpoint that is not trusted speaks TLS only; a node whose certificate is missing, expired, of another "
        "fleet or for other addresses is refused there by all others.",
    ),
    "api-keys": Topic(
        "API keys",
        "The head reads its API keys from a file on its own host, which others must not be able to read.",
    ),
    "clock": Topic(
        "clock",
        "A signed request counts for 60 seconds. With clocks further apart than that, nodes refuse each other.",
    ),
    "service": Topic("the service", "Whether launchd runs the node, and what the node says of its own health."),
    "double-load": Topic(
        "both launchd domains",
        "gui/UID and user/UID keep separate lists. One label loaded in both is two processes that fight for one port.",
    ),
    "session": Topic(
        "login session",
        "gui/UID exists only while the user is logged in at the screen; a LaunchAgent starts at login, not at boot.",
    ),
    "filevault": Topic(
        "FileVault after a restart",
        "Until somebody unlocks the disk at the screen, neither SSH nor the service is there.",
    ),
    "sleep": Topic("sleep", "A Mac that sleeps serves nobody. Open SSH sessions keep it awake, and hide that."),
    "link": Topic(
        "what each link carries",
        "Prompts and KV go in clear over loopback and endpoints that are marked trusted, such as a cable between two "
        "Macs; over others only encrypted.",
    ),
    "route": Topic(
        "route over Thunderbolt",
        "macOS has one route for 169.254/16, on its primary interface: without care what was meant for the cable "
        "leaves by Wi-Fi.",
    ),
    "mtu": Topic(
        "MTU",
        "With another MTU at each end of a cable large packets vanish, and transfers hang although pings answer.",
    ),
    "firewall": Topic(
        "application firewall",
        "It drops connections to programs that it does not know, which a Python of a new version is. Tried on the Mac "
        "itself, its ports answer all the same.",
    ),
    "port": Topic(
        "peer ports from the host's shell",
        "Whether a program that is started over SSH reaches the other nodes' ports.",
    ),
    "process": Topic(
        "peer ports from inside the service",
        "macOS judges a program by who started it: a LaunchAgent may be kept out of the local network (error 65, No "
        "route to host) while a shell over SSH reaches everybody. Only the node's own process can tell.",
    ),
    "node-id": Topic("node ids", "Two processes with one node id take each other's place in every other node's eyes."),
    "version": Topic("versions", "Nodes of neighbouring releases work together; the same one everywhere is simpler."),
    "identity": Topic(
        "cache identity and runtime",
        "KV is used only where it means the same: same model, same cache settings, same arithmetic.",
    ),
    "quarantine": Topic(
        "nodes in quarantine",
        "A head whose self-audit found a node's KV to differ from its own asks that node no more. kakeya quarantine "
        "list shows the evidence; kakeya quarantine release lets it be asked again.",
    ),
}

assert tuple(TOPICS) == get_args(Code)

__all__ = ["TOPICS", "Code", "Topic"]
