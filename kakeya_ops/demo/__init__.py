"""A whole fleet on loopback with a model made on the spot. May import MLX, to make models; no real fleet uses it."""

__all__: list[str] = []
