"""The fire drill: what happens to a request when something breaks, tried on one's own fleet and undone afterwards."""

__all__: list[str] = []
