"""The acceptance probe: does a worker really compute, ship and serve KV? It judges receipts, never impressions."""

__all__: list[str] = []
