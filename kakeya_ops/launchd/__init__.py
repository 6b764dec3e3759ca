"""What launchd wants and says, as values: property lists, calls of launchctl, their outcomes, what they print.

Pure throughout: `remote` carries the calls to a host, `observe` and `deploy` decide which.
"""

from __future__ import annotations

from kakeya_ops.launchd.domain import (
    Domain,
    DomainChoice,
    Service,
    candidate_domains,
    choose_domain,
    parse_domain,
    service_label,
)
from kakeya_ops.launchd.outcomes import Outcome, classify, describe, hint_for
from kakeya_ops.launchd.printed import ServiceState, parse_print, parse_print_disabled
from kakeya_ops.launchd.template import ServiceValues, render_plist

__all__ = [
    "Domain",
    "DomainChoice",
    "Outcome",
    "Service",
    "ServiceState",
    "ServiceValues",
    "candidate_domains",
    "choose_domain",
    "classify",
    "describe",
    "hint_for",
    "parse_domain",
    "parse_print",
    "parse_print_disabled",
    "render_plist",
    "service_label",
]
