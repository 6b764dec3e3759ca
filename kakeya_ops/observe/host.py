"""One host as it is now, read by one script."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from kakeya_ops.errors import EnvironmentFault
from kakeya_ops.inventory import Inventory, ResolvedHost
from kakeya_ops.launchd import candidate_domains, parse_print, parse_print_disabled
from kakeya_ops.launchd.outcomes import Outcome, classify
from kakeya_ops.memory.facts import parse_host
from kakeya_ops.observe.node import Asker, NodeFacts, node_requests, read_node
from kakeya_ops.observe.places import Places, on_host
from kakeya_ops.observe.script import make_script
from kakeya_ops.observe.state import (
    ApiKeysFile,
    CertificateFile,
    Fact,
    HostState,
    Job,
    KeyFile,
    ModelFacts,
    Python,
    Unknown,
)
from kakeya_ops.probes import MISSING, Finding, parse_findings
from kakeya_ops.remote.runner import Runner

_SECONDS = 60.0
_NO_KEYS = 44
_FOR_OTHERS = slice(4, 10)

T = TypeVar("T")


def observe_host(runner: Runner, inventory: Inventory, host: ResolvedHost, asker: Asker) -> HostState:
    """The state of `host`, in one call over `runner`.

    Raises `RemoteError` when the host cannot be asked, `EnvironmentFault` when it does not even know its user.
    """
    home = runner.home()
    places = Places.of(inventory, host, home)
    requests = node_requests(host, asker)
    script = make_script({name: request.config(places.key) for name, request in requests.items()})
    arguments = (
        places.label,
        places.root,
        places.key or "",
        places.identity,
        places.model,
        on_host(host.python or "", home),
        places.plist,
        on_host((host.api and host.api.keys_file) or "", home),
    )
    result = runner.run(script.argv(arguments), input=script.text, timeout_seconds=_SECONDS)
    findings = _Findings(parse_findings(result.stdout, script.nonce), host.name)
    return findings.state(places, home, read_node(requests, findings.all))


class _Findings:
    """What the probes found, turned into facts."""

    def __init__(self, findings: Mapping[str, Finding], host: str) -> None:
        self.all = findings
        self._host = host

    def state(self, places: Places, home: str, node: NodeFacts) -> HostState:
        """The facts put together; `node` is what the node says of itself."""
        user, uid = self._text("user"), self._number("uid")
        if isinstance(user, Unknown) or isinstance(uid, Unknown):
            raise EnvironmentFault(f"{self._host} does not tell who its user is", hint="try: ssh HOST id")
        domains = tuple(domain for domain in candidate_domains(uid) if self._get(f"domain_{domain.kind}").status == 0)
        return HostState(
            host=self._host,
            user=user,
            uid=uid,
            home=home,
            domains=domains,
            macos=self._text("macos"),
            chip=self._text("chip"),
            memory=parse_host(self.all),
            disk_free_bytes=self._parsed("disk", _free_bytes),
            python=self._python(),
            console_uid=self._number("console"),
            jobs=self._jobs(uid),
            disabled=self._disabled(places.label, [domain.kind for domain in domains]),
            plist=self._content("plist"),
            generation=self._link("current"),
            previous=self._link("previous"),
            served=self._content("served"),
            programs=frozenset(line.split("/")[-2] for line in self._get("programs").text.split("\n") if line),
            key=self._key(),
            identity=self._content("identity"),
            model=self._model(),
            authorities=self._content("authorities"),
            certificate=self._certificate(),
            lock=self._content("lock") or (b"" if "locked" in self.all else None),
            health=node.health,
            card=node.card,
            api_keys=self._api_keys(),
        )

    def _get(self, name: str) -> Finding:
        return self.all.get(name, MISSING)

    def _parsed(self, name: str, parse: Callable[[str], T]) -> Fact[T]:
        finding = self._get(name)
        if finding.status != 0:
            return Unknown(f"the probe {name} ended with status {finding.status}")
        try:
            return parse(finding.text)
        except (ValueError, IndexError):
            return Unknown(f"the probe {name} printed {finding.text[:60]!r}")

    def _text(self, name: str) -> Fact[str]:
        return self._parsed(name, lambda text: text.strip())

    def _number(self, name: str) -> Fact[int]:
        return self._parsed(name, int)

    def _content(self, name: str) -> bytes | None:
        finding = self.all.get(name)
        return finding.output if finding and finding.status == 0 else None

    def _link(self, name: str) -> str | None:
        finding = self._get(name)
        return finding.text.rstrip("/").rpartition("/")[2] if finding.status == 0 else None

    def _python(self) -> Fact[Python | None]:
        finding = self._get("python")
        return None if finding.status == 1 else self._parsed("python", _parse_python)

    def _key(self) -> Fact[KeyFile | None]:
        if "key_absent" in self.all:
            return None
        mode = self._parsed("key_mode", lambda text: int(text, 8))
        digest = self._parsed("key_digest", _parse_digest)
        if isinstance(mode, Unknown):
            return mode
        return digest if isinstance(digest, Unknown) else KeyFile(mode, digest)

    def _api_keys(self) -> Fact[ApiKeysFile | None]:
        finding = self.all.get("api_keys")
        if finding is None:
            return Unknown("the host asks for no API keys")
        return read_api_keys(finding.status, finding.text)

    def _certificate(self) -> Fact[CertificateFile | None]:
        if "certificate_absent" in self.all:
            return None
        mode = self._parsed("certificate_mode", lambda text: int(text, 8))
        return mode if isinstance(mode, Unknown) else CertificateFile(mode, self._get("certificate").output)

    def _model(self) -> Fact[ModelFacts | None]:
        if "model_absent" in self.all:
            return None
        files = self._parsed("model", _parse_files)
        return files if isinstance(files, Unknown) else ModelFacts(files, self._content("model_record"))

    def _jobs(self, uid: int) -> Fact[tuple[Job, ...]]:
        jobs: list[Job] = []
        for domain in candidate_domains(uid):
            finding = self._get(f"job_{domain.kind}")
            if finding.status == 0:
                jobs.append(Job(domain, parse_print(finding.text)))
            elif classify(finding.status, "print") not in (Outcome.GONE, Outcome.NO_DOMAIN):
                return Unknown(f"launchctl print {domain.target}/… ended with status {finding.status}")
        return tuple(jobs)

    def _disabled(self, label: str, kinds: list[str]) -> Fact[bool]:
        if not kinds:
            return Unknown("the user has no launchd domain")
        return any(parse_print_disabled(self._get(f"disabled_{kind}").text).get(label, False) for kind in kinds)


def read_api_keys(status: int, shown: str) -> ApiKeysFile | None:
    """What the look at a file of API keys found: `shown` is the line of ``ls -l``."""
    if status == _NO_KEYS:
        return None
    return ApiKeysFile(private=status == 0 and set(shown[_FOR_OTHERS]) == {"-"})


def _free_bytes(text: str) -> int:
    return int(text.strip().split("\n")[-1].split()[3]) * 1024


def _parse_python(text: str) -> Python:
    path, versions = text.strip().split("\n")
    major, minor = versions.split()
    return Python(path, (int(major), int(minor)))


def _parse_digest(text: str) -> str:
    digest = text.split()[0].lstrip("\\")
    if len(bytes.fromhex(digest)) != 32:
        raise ValueError(digest)
    return digest


def _parse_files(text: str) -> dict[str, tuple[int, int]]:
    files = {}
    for line in filter(None, text.split("\n")):
        size, modified, path = line.split(" ", 2)
        files[path.removeprefix("./")] = (int(size), int(modified))
    return files


__all__ = ["observe_host", "read_api_keys"]
