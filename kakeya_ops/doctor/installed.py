"""What is installed on the host and how it runs: model, key, service, session, power."""

from __future__ import annotations

from collections.abc import Iterator

from kakeya_ops.deploy.api_keys import refuse_api_keys
from kakeya_ops.deploy.certificates import certificate_fault
from kakeya_ops.doctor.finding import Finding
from kakeya_ops.doctor.patient import Patient
from kakeya_ops.errors import EnvironmentFault, KakeyaError
from kakeya_ops.launchd import Domain, DomainChoice, choose_domain
from kakeya_ops.observe.state import Job, KeyFile, Unknown

KEY_MODE = 0o600


def check_installed(patient: Patient) -> Iterator[Finding]:
    """Everything about what is installed."""
    yield from _model(patient)
    if patient.inventory.fleet.key_file is not None:
        yield patient.about("key", patient.state.key, lambda key: _key(patient, key))
    yield from _certificate(patient)
    yield from _api_keys(patient)
    yield patient.about("double-load", patient.state.jobs, lambda jobs: _double_load(patient, jobs))
    yield patient.about("service", patient.state.jobs, lambda jobs: _service(patient, jobs))
    yield patient.about("session", patient.state.console_uid, lambda uid: _session(patient, uid))
    if patient.is_mac:
        yield patient.about(
            "filevault", patient.fact(lambda facts: facts.filevault), lambda on: _filevault(patient, on)
        )
        yield patient.about("sleep", patient.fact(lambda facts: facts.sleep_minutes), lambda m: _sleep(patient, m))


def _model(patient: Patient) -> Iterator[Finding]:
    if patient.host.role == "cache":
        return
    if isinstance(patient.expected.model, KakeyaError):
        yield patient.say("model", "unknown", f"nothing to compare with: {patient.expected.model.message}")
        return
    try:
        steps = patient.expected.model.steps(patient.host, patient.places, patient.state)
    except KakeyaError as error:
        yield patient.say("model", "failed", error.message.removeprefix(f"{patient.name}: "), error.hint)
        return
    if steps:
        titles = ", ".join(step.title for step in steps)
        yield patient.say("model", "warning", f"deploy would {titles}", f"kakeya deploy {patient.name}")
    else:
        yield patient.say("model", "ok", f"{patient.places.model} has the hashes of this machine's")


def _key(patient: Patient, key: KeyFile | None) -> Finding:
    path = patient.places.key
    if key is None:
        return patient.say("key", "warning", f"{path} is not there yet", f"kakeya deploy {patient.name}")
    if key.mode != KEY_MODE:
        return patient.say(
            "key",
            "failed",
            f"{path} has mode {key.mode:04o}: others can read it",
            f"ssh {patient.host.ssh_host} chmod 600 {path}; if others were there, kakeya key rotate",
        )
    if patient.expected.key_digest not in (None, key.digest):
        return patient.say(
            "key",
            "failed",
            "another key than this machine's",
            f"kakeya deploy {patient.name}; kakeya key rotate goes on with a rotation that was interrupted",
        )
    return patient.say("key", "ok", "the same as here, mode 0600")


def _certificate(patient: Patient) -> Iterator[Finding]:
    if not patient.inventory.needs_tls:
        return
    authority, fix = patient.expected.authority, f"kakeya deploy {patient.name}"
    if authority is None:
        yield patient.say("certificate", "unknown", "this machine has no authority to compare with", "kakeya key new")
    elif patient.state.plist is None:
        yield patient.say("certificate", "warning", "deploy brings it", fix)
    elif fault := certificate_fault(patient.host, patient.state, authority):
        yield patient.say("certificate", "failed", fault, fix)
    else:
        yield patient.say("certificate", "ok", "of this fleet's authority, and good for more than a month")


def _api_keys(patient: Patient) -> Iterator[Finding]:
    if patient.host.api is None or patient.host.api.keys_file is None:
        return
    try:
        refuse_api_keys(patient.host, patient.state)
    except KakeyaError as error:
        yield patient.say("api-keys", "failed", error.message.removeprefix(f"{patient.name}: "), error.hint)
        return
    keys = patient.state.api_keys
    if isinstance(keys, Unknown):
        yield patient.say("api-keys", "unknown", keys.reason)
    else:
        yield patient.say("api-keys", "ok", f"{patient.host.api.keys_file} is its user's alone")


def _double_load(patient: Patient, jobs: tuple[Job, ...]) -> Finding:
    label = patient.places.label
    if len(jobs) > 1:
        wanted = _wanted_domain(patient)
        wrong = next(job.domain for job in jobs if job.domain != wanted)
        return patient.say(
            "double-load",
            "failed",
            f"{label} is loaded in {' and '.join(job.domain.target for job in jobs)}",
            f"ssh {patient.host.ssh_host} launchctl bootout {wrong.target}/{label}",
        )
    return patient.say("double-load", "ok", f"loaded in {jobs[0].domain.target}" if jobs else "loaded in neither")


def _wanted_domain(patient: Patient) -> Domain | None:
    try:
        return _choose(
            patient, 0 if isinstance(patient.state.console_uid, Unknown) else patient.state.console_uid
        ).domain
    except EnvironmentFault:
        return None


def _choose(patient: Patient, console_uid: int) -> DomainChoice:
    kinds = {domain.kind for domain in patient.state.domains}
    return choose_domain(console_uid, patient.state.uid, patient.host.domain, "gui" in kinds, "user" in kinds)


def _service(patient: Patient, jobs: tuple[Job, ...]) -> Finding:
    health = patient.state.health
    if patient.state.plist is None and not jobs:
        return patient.say("service", "warning", "not installed", f"kakeya deploy {patient.name}")
    if patient.state.disabled is True:
        return patient.say("service", "failed", "disabled in launchd", f"kakeya start {patient.name}")
    if not patient.state.running:
        state = jobs[0].service.state if jobs else "not loaded"
        return patient.say(
            "service", "failed", f"no process: {state}", f"kakeya logs {patient.name}; kakeya start {patient.name}"
        )
    if isinstance(health, Unknown):
        return patient.say("service", "unknown", health.reason)
    if health is None:
        return patient.say(
            "service", "failed", "it runs, and nothing answers at its endpoints", f"kakeya logs {patient.name}"
        )
    if not health.healthy:
        return patient.say("service", "failed", f"not healthy: {health.reason}", f"kakeya logs {patient.name}")
    return patient.say("service", "ok", "runs, and is healthy in its own words")


def _session(patient: Patient, console_uid: int) -> Finding:
    try:
        choice = _choose(patient, console_uid)
    except EnvironmentFault as error:
        return patient.say("session", "failed", error.message, error.hint)
    if choice.domain.kind == "user":
        return patient.say(
            "session",
            "warning",
            f"the service belongs in {choice.domain.target}: {choice.reason}. After a restart it is up once somebody "
            "has logged in, by SSH too",
            "turn on automatic login for this user; or log in by SSH after each restart",
        )
    return patient.say("session", "ok", f"{choice.domain.target}: {choice.reason}")


def _filevault(patient: Patient, on: bool) -> Finding:
    if not on:
        return patient.say("filevault", "ok", "off: the Mac comes back by itself after a restart")
    return patient.say(
        "filevault",
        "warning",
        "on: after a restart there is neither SSH nor service until somebody unlocks the disk at the screen",
        f"for a restart that is planned: ssh -t {patient.host.ssh_host} sudo fdesetup authrestart",
    )


def _sleep(patient: Patient, minutes: int) -> Finding:
    if minutes == 0:
        return patient.say("sleep", "ok", "never")
    job_runs = patient.state.running
    if patient.host.prevent_sleep and job_runs and not isinstance(patient.facts, Unknown) and patient.facts.kept_awake:
        return patient.say("sleep", "ok", f"after {minutes} min, but the service keeps it awake (prevent_sleep)")
    if patient.host.prevent_sleep and not job_runs:
        return patient.say("sleep", "ok", f"after {minutes} min; the service will keep it awake (prevent_sleep)")
    return patient.say(
        "sleep",
        "warning",
        f"the Mac sleeps after {minutes} min without a person",
        f"ssh -t {patient.host.ssh_host} sudo pmset -a sleep 0; "
        f"or hosts.{patient.name}.prevent_sleep: true in the inventory, then kakeya deploy {patient.name}",
    )


__all__ = ["check_installed"]
