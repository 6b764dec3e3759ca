"""Measures a running fleet from outside: rates, first tokens, links, jitter, and from where on each worker helps."""

__all__: list[str] = []
