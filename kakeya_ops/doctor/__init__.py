"""What must be true before a deploy and what only goes wrong on Macs: read-only, each finding with its fix."""

from __future__ import annotations

from kakeya_ops.doctor.examine import Examination
from kakeya_ops.doctor.finding import Finding, Report, Verdict
from kakeya_ops.doctor.patient import Expected

__all__ = ["Examination", "Expected", "Finding", "Report", "Verdict"]
