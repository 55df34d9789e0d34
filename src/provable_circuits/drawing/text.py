"""How much room a text takes, and shorter texts where there is too little."""

from __future__ import annotations

import unicodedata

NARROW, WIDE = 0.62, 1.0
"""Room for a character, as a share of the font's size: generous for any sans-serif font."""


def text_width(text: str, size: float) -> float:
    """An upper estimate of a text's width."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return size * (NARROW * (len(text) - wide) + WIDE * wide)


def shortened(text: str, size: float, room: float) -> str:
    """The text, or its beginning and end around an ellipsis if it does not fit."""
    if text_width(text, size) <= room:
        return text
    for kept in range(len(text) - 1, 1, -1):
        shorter = f"{text[: kept // 2]}…{text[-(kept - kept // 2) :]}"
        if text_width(shorter, size) <= room:
            return shorter
    return "…"
