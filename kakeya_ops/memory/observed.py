"""What a running node really takes, beside what was forecast for it.

A forecast is for the longest conversations that the inventory promises, and a node that has not had them yet takes
less. So a forecast below what was observed is an error in any case, and one above it only once the node has been full.
"""

from __future__ import annotations

from dataclasses import dataclass

from kakeya_ops.memory.footprint import Footprint

WORTH_A_WARNING_PERCENT = 15


@dataclass(frozen=True, slots=True)
class Observation:
    """What a node's card says: MLX's buffers now and at most, the process's footprint, and how full its pool is."""

    active_bytes: int | None = None
    peak_bytes: int | None = None
    footprint_bytes: int | None = None
    pool_used_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure, forecast and observed. `off_percent` is how far the forecast is above what was observed."""

    name: str
    forecast_bytes: int
    observed_bytes: int

    @property
    def off_percent(self) -> float:
        """Negative where more was observed than forecast."""
        return (self.forecast_bytes / self.observed_bytes - 1) * 100

    @property
    def warning(self) -> str | None:
        """A sentence where the two are more than 15 % apart."""
        off = self.off_percent
        if abs(off) <= WORTH_A_WARNING_PERCENT:
            return None
        if off < 0:
            return f"{self.name}: {-off:.0f} % less was forecast than is observed: do not trust this verdict"
        return f"{self.name}: {off:.0f} % more was forecast than is observed, as before the first full load"


def compare(need: Footprint, observed: Observation) -> tuple[Comparison, ...]:
    """Forecast beside observed: MLX's peak, and the process as a whole with the pool as full as it is now.

    A figure that the card does not have is left out.
    """
    pool = sum(term.nbytes for term in need.terms if term.group == "pool")
    pool_on_gpu = sum(term.nbytes for term in need.terms if term.group == "pool" and term.on_gpu)
    used = min(observed.pool_used_bytes, pool)
    pairs = (
        ("MLX peak", need.gpu_bytes - pool_on_gpu + used, observed.peak_bytes),
        ("process footprint", need.total_bytes - pool + used, observed.footprint_bytes),
    )
    return tuple(Comparison(name, forecast, seen) for name, forecast, seen in pairs if seen)


__all__ = ["WORTH_A_WARNING_PERCENT", "Comparison", "Observation", "compare"]
