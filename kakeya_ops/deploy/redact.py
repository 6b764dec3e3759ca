"""Takes out of text what nobody may see: keys, tokens, signatures. For the tail of a service's log, and diffs."""

from __future__ import annotations

import re

from kakeya_ops.secret import Secret

HIDDEN = "[redacted]"

_NAMES = "api[_-]?key|secret|token|passw(?:or)?d|fleet[_-]?key"
_PATTERNS = (
    re.compile(r"(?i)(authorization[\"']?\s*[:=]\s*[\"']?)[^\r\n\"']+"),
    re.compile(r"(?i)(\bbearer\s+)[A-Za-z0-9._~+/=-]+"),
    # A count such as max_tokens: 512 is no secret.
    re.compile(rf"(?i)([\w-]*(?:{_NAMES})[\w-]*[\"']?\s*[:=]\s*[\"']?)(?!\d{{1,9}}(?![\w.-]))[^\s\"',;&}}]+"),
    re.compile(r"(\bmac=)[0-9a-fA-F]{16,}"),
    re.compile(r"(\b(?:sk|hf|ghp|gho|xox[abp])[-_])[A-Za-z0-9_-]{8,}"),
)
_SHORTEST = 8


def redact(text: str, *secrets: Secret | None) -> str:
    """`text` without `secrets`, in whatever of the usual ways they are written, and without what looks like one."""
    for secret in secrets:
        for form in _forms(secret):
            text = text.replace(form, HIDDEN)
    for pattern in _PATTERNS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text


def _forms(secret: Secret | None) -> set[str]:
    if secret is None or len(secret.reveal()) < _SHORTEST:
        return set()
    value = secret.reveal()
    return {value.hex(), value.hex().upper(), repr(value), repr(value)[2:-1]}


__all__ = ["HIDDEN", "redact"]
