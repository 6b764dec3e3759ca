"""Prompts for the tiny models, whose tokens are bytes."""

from __future__ import annotations

import secrets

BLOCK = 64


def fresh_prompt(tokens: int) -> str:
    """ASCII text of `tokens` tokens that no one has sent before."""
    return secrets.token_hex(tokens)[:tokens]


def whole_blocks(tokens: int, block: int = BLOCK) -> int:
    """How many of a prompt's tokens can come from elsewhere: whole blocks before its last token."""
    return (tokens - 1) // block * block


__all__ = ["BLOCK", "fresh_prompt", "whole_blocks"]
