"""What ``launchctl print`` shows: tabs, raw values, and blocks in which the same words mean something else."""

from __future__ import annotations

from mac.state import Job, MacState

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SPAWN_TYPES = {"Interactive": "interactive (4)", "Background": "background (5)"}

NOISE = """
\tsemaphores = {
\t\tsuccessful exit => 0
\t}
\tevent triggers = {
\t}
\tendpoints = {
\t}
\tresource coalition = {
\t\tID = 1187
\t\ttype = resource
\t\tstate = active
\t\tactive count = 1
\t\tname = NAME
\t}
\tjetsam coalition = {
\t\tID = 1188
\t\ttype = jetsam
\t\tstate = active
\t\tactive count = 1
\t\tname = NAME
\t}
"""


def service_text(mac: MacState, job: Job) -> str:
    """What ``print SERVICE`` writes."""
    return "\n".join([f"{job.domain}/{job.label} = {{", *_service_lines(mac, job), "}", ""])


def _service_lines(mac: MacState, job: Job) -> Iterator[str]:
    plist = job.plist
    yield f"\tactive count = {1 if job.pid else 0}"
    yield f"\tpath = {job.path}"
    yield "\ttype = LaunchAgent"
    yield f"\tstate = {job.state}"
    yield ""
    yield f"\tprogram = {plist.get('Program') or job.arguments[0]}"
    yield from _block("arguments", job.arguments)
    yield ""
    for key, name in (
        ("WorkingDirectory", "working directory"),
        ("StandardOutPath", "stdout path"),
        ("StandardErrorPath", "stderr path"),
    ):
        if key in plist:
            yield f"\t{name} = {plist[key]}"
    if mac.print_noise:
        yield from _block("inherited environment", ["SSH_AUTH_SOCK => /private/tmp/com.apple.launchd.0/Listeners"])
    yield ""
    yield from _block("default environment", [f"PATH => {mac.job_path}"])
    yield ""
    variables = {key: value for key, value in plist.get("EnvironmentVariables", {}).items() if isinstance(value, str)}
    yield from _block(
        "environment", [f"{name} => {value}" for name, value in {**variables, "XPC_SERVICE_NAME": job.label}.items()]
    )
    yield ""
    yield from _own_lines(mac, job)


def _own_lines(mac: MacState, job: Job) -> Iterator[str]:
    plist = job.plist
    yield f"\tdomain = {job.domain} [100057]"
    yield "\tasid = 100057"
    yield f"\tminimum runtime = {plist.get('ThrottleInterval', 10)}"
    yield f"\texit timeout = {plist.get('ExitTimeOut', 5)}"
    yield f"\truns = {job.runs}"
    if job.pid is not None:
        yield f"\tpid = {job.pid}"
    if job.runs:
        yield f"\timmediate reason = {job.immediate_reason}"
    yield from ("\tforks = 0", "\texecs = 1", "\tinitialized = 1", "\ttrampolined = 1")
    yield f"\tlast exit code = {job.last_exit}"
    if job.last_signal:
        yield f"\tlast terminating signal = {job.last_signal}"
    if job.last_exit_reason:
        yield f"\tlast exit reason = {job.last_exit_reason}"
    if mac.print_noise:
        yield NOISE.replace("NAME", job.label).rstrip("\n")
    yield ""
    yield f"\tspawn type = {SPAWN_TYPES.get(plist.get('ProcessType', ''), 'daemon (3)')}"
    yield "\tjetsam priority = 40"
    if mac.profile != "catalina":
        yield f"\tjob state = {job.job_state}"
    words = [word for key, word in (("KeepAlive", "keepalive"), ("RunAtLoad", "runatload")) if plist.get(key)]
    yield f"\tproperties = {' | '.join(words)}"


def _block(name: str, lines: list[str]) -> list[str]:
    """A block whose values stand as they are: their further lines begin wherever they begin."""
    return [f"\t{name} = {{", *(f"\t\t{line}" for line in lines), "\t}"]


def domain_text(mac: MacState, domain: str) -> str:
    """What ``print DOMAIN`` writes."""
    jobs = mac.jobs.get(domain, {}).values()
    services = [f"{job.pid or 0:>8}      - \t{job.label}" for job in jobs]
    lines = [
        f"{domain} = {{",
        f"\ttype = {'login' if domain.startswith('gui/') else 'user'}",
        "\thandle = 100020",
        f"\tactive count = {len(services) + 1}",
        f"\tservice count = {len(services)}",
        "\tcreator = loginwindow[415]",
        *_block("services", services),
        "}",
        "",
    ]
    return "\n".join(lines)


def disabled_text(mac: MacState) -> str:
    """What ``print-disabled`` writes, in the words of the time."""
    words = {True: "true", False: "false"} if mac.profile == "catalina" else {True: "disabled", False: "enabled"}
    lines = [f'"{label}" => {words[disabled]}' for label, disabled in mac.disabled.items()]
    text = "\n".join(_block("disabled services", lines))
    return text + "\n" + "\n".join(_block("login item associations", [])) + "\n"


def list_text(mac: MacState, domain: str) -> str:
    """What ``list`` writes: pid or ``-``, exit code or minus the signal, label."""
    jobs = mac.jobs.get(domain, {}).values()
    return "PID\tStatus\tLabel\n" + "".join(f"{job.pid or '-'}\t{_status(job)}\t{job.label}\n" for job in jobs)


def list_service_text(job: Job) -> str:
    """What ``list LABEL`` writes."""
    import json

    fields = {
        "StandardOutPath": job.plist.get("StandardOutPath"),
        "LimitLoadToSessionType": job.plist.get("LimitLoadToSessionType", "Aqua"),
        "Label": job.label,
        "OnDemand": not job.plist.get("KeepAlive"),
        "LastExitStatus": _status(job) * 256 if _status(job) >= 0 else -_status(job),
        "PID": job.pid,
        "Program": job.arguments[0],
    }
    lines = [f'\t"{key}" = {json.dumps(value)};' for key, value in fields.items() if value is not None]
    arguments = [f"\t\t{json.dumps(argument)};" for argument in job.arguments]
    return "\n".join(["{", *lines, '\t"ProgramArguments" = (', *arguments, "\t);", "};", ""])


def _status(job: Job) -> int:
    if job.last_signal:
        return -int(job.last_signal.rpartition(" ")[2])
    first = job.last_exit.partition(":")[0]
    return int(first) if first.isdigit() else 0
