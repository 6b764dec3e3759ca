"""The only door to MLX and mlx-lm: one model on one compute thread; import, prefill, export and decode."""

__all__: list[str] = []
