"""The life of a job: what it is started with, when it is started again, and how it goes."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from mac.agents import LABEL, STUBBORN, agent, python_agent, shell_agent
from mac.host import MacHost


def target(mac: MacHost) -> str:
    return f"{mac.domain()}/{LABEL}"


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def start(mac: MacHost, plist: dict[str, object]) -> Path:
    """Load the job with its output in the file that is returned."""
    log = mac.home / "logs" / "job.log"
    path = mac.write_agent({**plist, "StandardOutPath": str(log), "StandardErrorPath": str(log)})
    done = mac.launchctl("bootstrap", mac.domain(), str(path))
    assert done.returncode == 0, done.stderr
    return log


def test_a_job_gets_launchds_environment_and_no_other(mac: MacHost) -> None:
    variables = {"KAKEYA": "a ]]> & 'b'", "PORT": 8080}
    log = start(mac, shell_agent("exec /usr/bin/env -0", EnvironmentVariables=variables))
    mac.wait_for(lambda: log.exists() and "XPC_SERVICE_NAME" in log.read_text())
    found = dict(entry.split("=", 1) for entry in log.read_text().split("\0") if entry)
    assert found["PATH"] == "/usr/bin:/bin:/usr/sbin:/sbin"
    assert found["HOME"] == str(mac.home)
    assert (found["USER"], found["XPC_SERVICE_NAME"]) == ("fluffy", LABEL)
    assert found["KAKEYA"] == "a ]]> & 'b'"
    assert "PORT" not in found, "only strings are taken"
    assert not {"VIRTUAL_ENV", "PYTHONPATH"} & set(found)


def test_a_job_gets_its_folder_umask_and_limits(mac: MacHost) -> None:
    plist = shell_agent(
        "pwd; umask; ulimit -n", WorkingDirectory=str(mac.home), Umask=0o077, SoftResourceLimits={"NumberOfFiles": 321}
    )
    log = start(mac, plist)
    mac.wait_for(lambda: len(lines(log)) == 3)
    assert lines(log) == [str(mac.home), "0077", "321"]
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_keepalive_starts_it_again_after_the_throttle_interval(mac: MacHost) -> None:
    mac.set(throttle_scale=0.03)
    began = time.monotonic()
    log = start(mac, shell_agent("echo started", KeepAlive=True, ThrottleInterval=10))
    mac.wait_for(lambda: len(lines(log)) >= 4)
    assert time.monotonic() - began >= 3 * 0.3


def test_a_job_that_ran_long_is_started_again_at_once(mac: MacHost) -> None:
    mac.set(throttle_scale=0.0)
    start(mac, agent(KeepAlive=True))
    job = mac.wait_until_running(LABEL)
    assert job.pid is not None
    os.kill(job.pid, signal.SIGKILL)
    again = mac.wait_until_running(LABEL, runs=2)
    assert again.pid != job.pid
    assert (again.last_signal, again.immediate_reason) == ("Killed: 9", "inefficient")


def test_a_crash_loop_is_scheduled_not_running(mac: MacHost) -> None:
    mac.set(throttle_scale=60.0)
    start(mac, shell_agent("exit 5", KeepAlive=True))
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.last_exit == "5")
    text = mac.launchctl("print", target(mac)).stdout
    assert "\tstate = spawn scheduled\n" in text
    assert "\tlast exit code = 5\n" in text
    assert "\tpid = " not in text


@pytest.mark.parametrize(
    ("keep_alive", "code", "again"),
    [
        (False, 1, False),
        ({"SuccessfulExit": False}, 1, True),
        ({"SuccessfulExit": False}, 0, False),
        ({"SuccessfulExit": True}, 0, True),
        ({"Crashed": True}, 1, False),
        ({"Crashed": False}, 1, True),
    ],
)
def test_keepalive_may_have_conditions(mac: MacHost, keep_alive: object, code: int, again: bool) -> None:
    mac.set(throttle_scale=60.0)
    start(mac, shell_agent(f"exit {code}", KeepAlive=keep_alive))
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.last_exit == str(code))
    job = mac.job(LABEL)
    assert job is not None
    assert job.state == ("spawn scheduled" if again else "not running")


def test_without_runatload_a_job_waits_for_kickstart(mac: MacHost) -> None:
    path = mac.write_agent(agent(RunAtLoad=False))
    mac.launchctl("bootstrap", mac.domain(), str(path))
    job = mac.job(LABEL)
    assert job is not None
    assert (job.state, job.last_exit) == ("not running", "(never exited)")
    pid = mac.launchctl("kickstart", "-p", target(mac)).stdout
    assert int(pid) == mac.wait_until_running(LABEL).pid


def test_bootout_answers_long_before_the_job_is_gone(mac: MacHost) -> None:
    log = start(mac, python_agent(STUBBORN, ExitTimeOut=0))
    mac.wait_for(lambda: lines(log) == ["ready"])
    assert mac.launchctl("bootout", target(mac)).returncode == 0
    printed = mac.launchctl("print", target(mac))
    assert (printed.returncode, "\tstate = SIGTERMed\n" in printed.stdout) == (0, True)
    again = mac.launchctl("bootstrap", mac.domain(), str(mac.agents / f"{LABEL}.plist"))
    assert again.returncode == 5
    job = mac.job(LABEL)
    assert job is not None
    assert job.pid is not None
    assert f"\tpid = {job.pid}\n" in printed.stdout
    os.kill(job.pid, signal.SIGKILL)
    mac.wait_until_gone(LABEL)
    assert mac.launchctl("print", target(mac)).returncode == 113
    assert mac.leftovers() == []


def test_the_exit_timeout_is_waited_for(mac: MacHost) -> None:
    log = start(mac, python_agent(STUBBORN, ExitTimeOut=1))
    mac.wait_for(lambda: lines(log) == ["ready"])
    began = time.monotonic()
    mac.launchctl("bootout", target(mac))
    mac.wait_until_gone(LABEL)
    assert time.monotonic() - began >= 1.0


def test_a_label_lingers_after_its_process(mac: MacHost) -> None:
    mac.set(bootout_linger_seconds=60.0)
    start(mac, agent(KeepAlive=True))
    mac.wait_until_running(LABEL)
    mac.launchctl("bootout", target(mac))
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.pid is None)
    assert "\tstate = SIGTERMed\n" in mac.launchctl("print", target(mac)).stdout
    mac.set(bootout_linger_seconds=0.0)
    mac.wait_until_gone(LABEL)


def test_the_plist_is_read_once(mac: MacHost) -> None:
    start(mac, agent("/bin/sleep", "300"))
    mac.write_agent(agent("/bin/sleep", "200"))
    text = mac.launchctl("print", target(mac)).stdout
    assert "\t\t300\n" in text
    assert "\t\t200\n" not in text


def test_kickstart_replaces_the_process(mac: MacHost) -> None:
    start(mac, agent())
    before = mac.wait_until_running(LABEL)
    pid = int(mac.launchctl("kickstart", "-kp", target(mac)).stdout)
    after = mac.wait_until_running(LABEL, runs=2)
    assert before.pid != after.pid == pid


def test_kickstart_may_unregister(mac: MacHost) -> None:
    start(mac, agent())
    mac.wait_until_running(LABEL)
    mac.set(kickstart_kill_unregisters=True)
    mac.launchctl("kickstart", "-k", target(mac))
    mac.wait_until_gone(LABEL)


def test_kill_sends_a_signal(mac: MacHost) -> None:
    start(mac, agent())
    mac.wait_until_running(LABEL)
    assert mac.launchctl("kill", "SIGTERM", target(mac)).returncode == 0
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.state == "not running")
    assert mac.launchctl("kill", "SIGTERM", target(mac)).stderr == "No process to signal.\n"
    assert "\tlast terminating signal = Terminated: 15\n" in mac.launchctl("print", target(mac)).stdout


def test_a_job_may_be_loaded_and_never_started(mac: MacHost) -> None:
    mac.set(bootstrap_ok_but_not_started=True)
    start(mac, agent(KeepAlive=True))
    job = mac.job(LABEL)
    assert job is not None
    assert (job.state, job.pid, job.last_exit) == ("not running", None, "(never exited)")
    mac.launchctl("kickstart", target(mac))
    mac.wait_until_running(LABEL)


def test_bootout_may_disable(mac: MacHost) -> None:
    mac.set(bootout_disables=True)
    start(mac, agent())
    mac.launchctl("bootout", target(mac))
    assert mac.state.disabled == {LABEL: True}


def test_a_job_may_be_started_once_more_while_it_goes(mac: MacHost) -> None:
    mac.set(respawn_during_bootout=True)
    start(mac, agent(KeepAlive=True))
    pid = mac.wait_until_running(LABEL).pid
    mac.launchctl("bootout", target(mac))
    mac.wait_until_gone(LABEL)
    (left,) = mac.leftovers()
    assert left.pid != pid


def test_a_job_that_cannot_begin_leaves_no_log(mac: MacHost) -> None:
    mac.set(spawn_fail="78", throttle_scale=60.0)
    log = start(mac, agent(KeepAlive=True))
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.runs == 1 and job.pid is None)
    text = mac.launchctl("print", target(mac)).stdout
    assert "\tlast exit code = 78: EX_CONFIG\n" in text
    assert "\tjob state = spawn failed\n" in text
    assert not log.exists()


def test_a_program_with_a_broken_signature_is_killed(mac: MacHost) -> None:
    mac.set(spawn_fail="codesigning", throttle_scale=60.0)
    start(mac, agent(KeepAlive=True))
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.last_exit_reason is not None)
    text = mac.launchctl("print", target(mac)).stdout
    assert "\tlast exit reason = OS_REASON_CODESIGNING\n" in text
    assert "\tstate = spawn scheduled\n" in text


@pytest.mark.parametrize("fault", [{"ProgramArguments": ["/nowhere"]}, {"WorkingDirectory": "/nowhere"}])
def test_what_does_not_exist_is_a_faulty_configuration(mac: MacHost, fault: dict[str, object]) -> None:
    start(mac, {**agent(), **fault})
    mac.wait_for(lambda: (job := mac.job(LABEL)) is not None and job.last_exit == "78: EX_CONFIG")


@pytest.mark.parametrize("abandoned", [False, True])
def test_the_process_group_ends_with_the_job_unless_abandoned(mac: MacHost, abandoned: bool) -> None:
    plist = shell_agent("/bin/sleep 300 & echo $!; wait", AbandonProcessGroup=abandoned)
    log = start(mac, plist)
    mac.wait_for(lambda: lines(log) != [])
    child = int(lines(log)[0])
    mac.launchctl("bootout", target(mac))
    mac.wait_until_gone(LABEL)
    mac.wait_for(lambda: [process.pid for process in mac.leftovers()] == ([child] if abandoned else []))


def test_caffeinate_becomes_the_program_and_holds_while_it_runs(mac: MacHost) -> None:
    start(mac, agent("/usr/bin/caffeinate", "-i", "/bin/sleep", "300"))
    job = mac.wait_until_running(LABEL)
    mac.wait_for(lambda: "PreventUserIdleSystemSleep     1" in mac.run("pmset", "-g", "assertions").stdout)
    names = [process.name() for process in mac.processes() if process.pid == job.pid]
    assert names == ["sleep"]
    mac.launchctl("bootout", target(mac))
    mac.wait_until_gone(LABEL)
    mac.wait_for(lambda: "PreventUserIdleSystemSleep     0" in mac.run("pmset", "-g", "assertions").stdout)


def test_print_shows_values_raw_and_other_states(mac: MacHost) -> None:
    trap = "line\n}\n\tpid = 99\n\t}\n\tpid = 98"
    start(mac, agent("/bin/sh", "-c", "exec sleep 300", trap, EnvironmentVariables={"TOKEN": "in clear"}))
    mac.wait_until_running(LABEL)
    text = mac.launchctl("print", target(mac)).stdout
    assert f"\t\t{trap}\n" in text
    assert "\t\tTOKEN => in clear\n" in text
    assert "\t\tstate = active\n" in text
    mac.set(print_noise=False)
    assert "state = active" not in mac.launchctl("print", target(mac)).stdout
