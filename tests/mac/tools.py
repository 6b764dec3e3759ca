"""The other programs of macOS that are called on a host, as far as they are called."""

from __future__ import annotations

import os

from mac import bsd_stat, memory_tools
from mac.codes import Failure
from mac.state import GIB, MacState, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def run(store: Store, name: str, arguments: list[str]) -> str:
    """What the program `name` writes to stdout; `Failure` where it fails."""
    if name == "caffeinate":
        return _caffeinate(store, arguments)
    if name == "id":
        return _id(store, arguments)
    return TOOLS[name](store.read(), arguments)


def _sw_vers(mac: MacState, arguments: list[str]) -> str:
    values = {"ProductName": "macOS", "ProductVersion": mac.macos, "BuildVersion": mac.build}
    if not arguments:
        return "".join(f"{key}:\t\t{value}\n" for key, value in values.items())
    wanted = arguments[0].lstrip("-")
    key = wanted[:1].upper() + wanted[1:]
    if key not in values:
        raise Failure(1, "Usage: sw_vers [--help|--productName|--productVersion|--buildVersion]")
    return f"{values[key]}\n"


def _sysctl(mac: MacState, arguments: list[str]) -> str:
    values = {
        "hw.memsize": str(mac.memory_bytes),
        "hw.model": mac.model,
        "hw.ncpu": "10",
        "hw.pagesize": str(memory_tools.PAGE_BYTES),
        "hw.optional.arm64": "1",
        "hw.perflevel0.physicalcpu": "4",
        "hw.perflevel1.physicalcpu": "6",
        "machdep.cpu.brand_string": mac.chip,
        "iogpu.wired_limit_mb": str(mac.wired_limit_mb),
        "kern.osproductversion": mac.macos,
        "kern.ostype": "Darwin",
        "kern.memorystatus_vm_pressure_level": str(mac.pressure_level),
        "vm.swapusage": memory_tools.swap_usage(mac),
        **mac.sysctl,
    }
    bare = "-n" in arguments
    lines = []
    for name in (argument for argument in arguments if not argument.startswith("-")):
        if name not in values:
            raise Failure(1, f"sysctl: unknown oid '{name}'")
        lines.append(values[name] if bare else f"{name}: {values[name]}")
    return "".join(f"{line}\n" for line in lines)


def _plutil(_: MacState, arguments: list[str]) -> str:
    if len(arguments) < 2:
        raise Failure(1, "plutil: No files specified.")
    verb, *rest = arguments
    paths = [argument for argument in rest if not argument.startswith("-")]
    if verb == "-lint":
        return "".join(_lint(path) for path in paths)
    if verb == "-convert" and paths[0] == "json":
        import json

        return json.dumps(_read_plist(rest[-1]))
    if verb == "-extract" and len(paths) > 2:
        value = _read_plist(paths[2])
        if paths[0] not in value:
            raise Failure(1, f"{paths[2]}: Could not extract value, error: No value at that key path")
        return f"{value[paths[0]]}\n"
    raise Failure(1, f"plutil: unrecognized option: {verb}")


def _lint(path: str) -> str:
    _read_plist(path)
    return f"{path}: OK\n"


def _read_plist(path: str) -> dict[str, object]:
    import plistlib
    from xml.parsers.expat import ExpatError

    try:
        with open(path, "rb") as file:
            return plistlib.load(file)
    except FileNotFoundError:
        raise Failure(1, f"{path}: file does not exist or is not readable or is not a regular file") from None
    except (ExpatError, plistlib.InvalidFileException, ValueError) as error:
        raise Failure(1, f"{path}: Property List error: {error}") from None


def _pmset(mac: MacState, arguments: list[str]) -> str:
    if arguments[:1] != ["-g"]:
        raise Failure(77, "'pmset' must be run as root...")
    if arguments[1:] == ["assertions"]:
        held = [(int(pid), flags) for pid, flags in mac.assertions.items() if _alive(int(pid))]
        lines = [
            f'   pid {pid}(caffeinate): PreventUserIdleSystemSleep named: "caffeinate command-line tool"\n'
            for pid, flags in held
            if "i" in flags
        ]
        return f"Assertion status system-wide:\n   PreventUserIdleSystemSleep     {int(bool(lines))}\n" + "".join(lines)
    if arguments[1:] in (["batt"], ["ps"]):
        return f"Now drawing from '{'AC' if mac.on_ac_power else 'Battery'} Power'\n"
    return (
        "System-wide power settings:\nCurrently in use:\n"
        f" standby              1\n womp                 1\n sleep                {mac.sleep_minutes}\n"
        " disksleep            10\n ttyskeepawake        1\n autorestart          0\n displaysleep         10\n"
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _caffeinate(store: Store, arguments: list[str]) -> str:
    """The caller becomes the utility; a child in the same process group holds the assertion until it ends."""
    flags = ""
    while arguments and arguments[0].startswith("-"):
        word = arguments.pop(0)
        if set(word[1:]) - set("dimsu"):
            raise Failure(64, "usage: caffeinate [-disu] [-t timeout] [-w Process ID] [command arguments...]")
        flags += word[1:]
    if not arguments:
        raise Failure(64, "the simulated caffeinate wants a command")
    holder = os.fork()
    if not holder:
        _hold(os.getppid())
    with store.change() as mac:
        mac.assertions[str(holder)] = flags or "i"
    try:
        os.execvp(arguments[0], arguments)
    except FileNotFoundError:
        raise Failure(127, f"{arguments[0]}: No such file or directory") from None
    except OSError as error:
        raise Failure(126, f"{arguments[0]}: {error.strerror}") from None


def _hold(parent: int) -> None:
    import time

    os.closerange(0, 256)
    while os.getppid() == parent:
        time.sleep(0.05)
    os._exit(0)


def _id(store: Store, arguments: list[str]) -> str:
    mac = store.read()
    if mac.uid is None or arguments not in (["-u"], ["-ur"], ["-un"]):
        real = next(path for path in ("/usr/bin/id", "/bin/id") if os.path.exists(path))
        os.execv(real, ["id", *arguments])
    return f"{mac.user if 'n' in arguments[0] else mac.uid}\n"


def _socketfilterfw(mac: MacState, arguments: list[str]) -> str:
    if "--getglobalstate" in arguments:
        return f"Firewall is {'enabled. (State = 1)' if mac.firewall else 'disabled. (State = 0)'} \n"
    if "--listapps" in arguments:
        lines = [
            f"{n} :  {path} \n             (Allow incoming connections) \n\n"
            for n, path in enumerate(mac.firewall_allows, 1)
        ]
        return f"Total number of apps = {len(lines)} \n" + "".join(lines)
    raise Failure(1, "Must be root to change settings.")


def _fdesetup(mac: MacState, arguments: list[str]) -> str:
    if arguments != ["status"]:
        raise Failure(11, "fdesetup: this command must be run as root.")
    return f"FileVault is {'On' if mac.filevault else 'Off'}.\n"


def _date(mac: MacState, arguments: list[str]) -> str:
    import time

    return time.strftime(arguments[0].lstrip("+").replace("%s", str(int(time.time()) + mac.clock_ahead_seconds))) + "\n"


def _route(mac: MacState, arguments: list[str]) -> str:
    if arguments[:2] != ["-n", "get"]:
        raise Failure(64, "usage: route [-nqv] command [[modifiers] args]")
    address = arguments[-1]
    interface = mac.routes.get(address, "lo0" if address.startswith("127.") else "en0")
    return f"   route to: {address}\ndestination: {address}\n  interface: {interface}\n      flags: <UP,HOST,DONE>\n"


def _hostname(mac: MacState, arguments: list[str]) -> str:
    return "mac.local\n"


def _ping(mac: MacState, arguments: list[str]) -> str:
    """Only loopback answers, and other addresses of the bridge."""
    address = arguments[-1]
    if not address.startswith(("127.", mac.bridge_address.rpartition(".")[0])):
        raise Failure(2, "Request timeout for icmp_seq 0")
    return f"--- {address} ping statistics ---\nround-trip min/avg/max/stddev = 0.301/0.512/0.700/0.100 ms\n"


def _nc(mac: MacState, arguments: list[str]) -> str:
    """Listen once and pass on what comes, or pass standard input on to a listener."""
    import socket
    import sys

    if arguments[0] == "-l":
        with socket.create_server(("0.0.0.0", int(arguments[1]))) as server:
            connection, _ = server.accept()
        with connection:
            while connection.recv(2**20):
                pass
        return ""
    try:
        with socket.create_connection((arguments[-2], int(arguments[-1])), 5) as connection:
            while data := sys.stdin.buffer.read(2**20):
                connection.sendall(data)
    except OSError as error:
        raise Failure(1, str(error)) from None
    return ""


def _ifconfig(mac: MacState, arguments: list[str]) -> str:
    lan = "\tstatus: inactive\n"
    if mac.lan_address:
        lan = f"\tinet {mac.lan_address} netmask 0xffffff00 broadcast 192.0.2.255\n\tstatus: active\n"
    blocks = {
        "lo0": "lo0: flags=8049<UP,LOOPBACK,RUNNING,MULTICAST> mtu 16384\n\tinet 127.0.0.1 netmask 0xff000000\n",
        "en0": f"en0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> mtu {mac.mtu.get('en0', 1500)}\n"
        f"\tether 00:00:5e:00:53:01\n{lan}",
        "bridge0": "bridge0: flags=8863<UP,BROADCAST,SMART,RUNNING,SIMPLEX,MULTICAST> "
        f"mtu {mac.mtu.get('bridge0', 1500)}\n\tinet6 fe80::5e%bridge0 prefixlen 64 scopeid 0xc\n"
        f"\tinet {mac.bridge_address} netmask 0xffff0000\n\tstatus: active\n",
    }
    names = [argument for argument in arguments if not argument.startswith("-")] or list(blocks)
    for name in names:
        if name not in blocks:
            raise Failure(1, f"ifconfig: interface {name} does not exist")
    return "".join(blocks[name] for name in names)


def _df(mac: MacState, arguments: list[str]) -> str:
    flags = "".join(argument[1:] for argument in arguments if argument.startswith("-"))
    unit, word = (GIB, "1G-blocks") if "g" in flags else (1024, "1024-blocks") if "k" in flags else (512, "512-blocks")
    paths = [argument for argument in arguments if not argument.startswith("-")]
    for path in paths:
        if not os.path.exists(path):
            raise Failure(1, f"df: {path}: No such file or directory")
    total, free = mac.disk_total_bytes // unit, mac.disk_free_bytes // unit
    used, share = total - free, round(100 * (1 - mac.disk_free_bytes / mac.disk_total_bytes))
    extra, counts = ("", "") if "P" in flags else (" iused ifree %iused ", " 450000 2000000 18% ")
    head = f"Filesystem    {word}      Used Available Capacity{extra} Mounted on\n"
    line = f"/dev/disk3s5   {total:>10} {used:>9} {free:>9}    {share:>3}%{counts}    /System/Volumes/Data\n"
    return head + line * max(len(paths), 1)


def _uname(mac: MacState, arguments: list[str]) -> str:
    values = {"s": "Darwin", "n": "mac.local", "r": "24.5.0", "v": f"Darwin Kernel Version 24.5.0 ({mac.build})"}
    values["m"] = "arm64"
    flags = "".join(argument[1:] for argument in arguments) or "s"
    wanted = "snrvm" if "a" in flags else [letter for letter in "snrvm" if letter in flags]
    return " ".join(values[letter] for letter in wanted) + "\n"


def _lsof(_: MacState, arguments: list[str]) -> str:
    """Established TCP connections of processes, as ``-F n`` shows them."""
    if arguments[:-1] != ["-nP", "-a", "-iTCP", "-sTCP:ESTABLISHED", "-Fn", "-p"]:
        raise Failure(1, f"lsof: this simulation knows no {' '.join(arguments)}")
    found = {pid: _connections(pid) for pid in arguments[-1].split(",")}
    shown = [
        f"p{pid}\n" + "".join(f"f7\nn{ours}->{theirs}\n" for ours, theirs in ends)
        for pid, ends in found.items()
        if ends
    ]
    if not shown:
        raise Failure(1)
    return "".join(shown)


def _connections(pid: str) -> list[tuple[str, str]]:
    """Both ends of each, from what Linux tells of every process."""
    try:
        descriptors = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")]
    except OSError:
        return []
    with open("/proc/net/tcp", encoding="ascii") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    own = {name for name in descriptors if name.startswith("socket:")}
    return [(_end(row[1]), _end(row[2])) for row in rows if row[3] == "01" and f"socket:[{row[9]}]" in own]


def _end(text: str) -> str:
    address, port = text.split(":")
    return ".".join(str(byte) for byte in reversed(bytes.fromhex(address))) + f":{int(port, 16)}"


def _shasum(_: MacState, arguments: list[str]) -> str:
    import hashlib

    if arguments[:2] != ["-a", "256"]:
        raise Failure(1, "Type shasum -h for help")
    lines = []
    for path in arguments[2:] or ["-"]:
        try:
            with open(0 if path == "-" else path, "rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path}\n")
        except OSError as error:
            raise Failure(1, f"shasum: {path}: {error.strerror}") from None
    return "".join(lines)


TOOLS: dict[str, Callable[[MacState, list[str]], str]] = {
    "date": _date,
    "df": _df,
    "fdesetup": _fdesetup,
    "hostname": _hostname,
    "ifconfig": _ifconfig,
    "lsof": _lsof,
    "memory_pressure": memory_tools.memory_pressure,
    "nc": _nc,
    "osascript": memory_tools.osascript,
    "ping": _ping,
    "plutil": _plutil,
    "pmset": _pmset,
    "ps": memory_tools.ps,
    "route": _route,
    "shasum": _shasum,
    "socketfilterfw": _socketfilterfw,
    "stat": bsd_stat.run,
    "sw_vers": _sw_vers,
    "sysctl": _sysctl,
    "top": memory_tools.top,
    "uname": _uname,
    "vm_stat": memory_tools.vm_stat,
}

NAMES = ("launchctl", "caffeinate", "id", *TOOLS)
"""Every program here."""
