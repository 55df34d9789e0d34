"""What can be written of a text, how much room it takes, and shorter ones for too little room."""

from __future__ import annotations

import re
import unicodedata

NARROW, WIDE = 0.62, 1.0
"""Room for a character, as a share of the font's size: generous for any sans-serif font."""

BOLD = 1.1
"""How much wider bold text is."""


_UNWRITABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file can hold, not even escaped."""


def writable(text: str) -> str:
    """The text with a sign of replacement for each character that cannot be written."""
    return _UNWRITABLE.sub("\ufffd", text)


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """An upper estimate of a text's width."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    width = size * (NARROW * (len(text) - wide) + WIDE * wide)
    return BOLD * width if bold else width


def shortened(text: str, size: float, room: float, *, bold: bool = False) -> str:
    """The text, or its beginning and end around an ellipsis if it does not fit."""
    if text_width(text, size, bold=bold) <= room:
        return text
    for kept in range(len(text) - 1, 1, -1):
        shorter = f"{text[: kept // 2]}…{text[-(kept - kept // 2) :]}"
        if text_width(shorter, size, bold=bold) <= room:
            return shorter
    return "…"
