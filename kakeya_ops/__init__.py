"""Kakeya: a few Apple Silicon Macs as one private LLM service."""

__version__ = "0.1.0"

__all__ = ["__version__"]
