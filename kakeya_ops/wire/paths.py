"""The paths of a node's peer port."""

from __future__ import annotations

CARD_PATH = "/v1/card"
CARDS_PATH = "/v1/cards"
LOOKUP_PATH = "/v1/kv/lookup"
FETCH_PATH = "/v1/kv/fetch"
BLOCKS_PATH = "/v1/kv/blocks"
DRILL_PATH = "/v1/drill"
PREFILL_PATH = "/v1/prefill"

__all__ = ["BLOCKS_PATH", "CARDS_PATH", "CARD_PATH", "DRILL_PATH", "FETCH_PATH", "LOOKUP_PATH", "PREFILL_PATH"]
