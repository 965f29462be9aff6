"""Text of others (names in a trace, a server's answer, an error) made fit to be shown on a terminal and in a log."""

from __future__ import annotations

import re

_UNSAFE = r"[^\x20-\x7e]"
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control and formatting characters (ESC, bidirectional overrides, zero-width), lone surrogates, line separators."""


def safe(text: str, *, ascii_only: bool = False) -> str:
    """The text with everything escaped that could command a terminal, begin a line or hide what it says."""
    return re.sub(_UNSAFE, lambda found: _escape(found[0], ascii_only), text)


def _escape(character: str, ascii_only: bool) -> str:
    import unicodedata  # noqa: PLC0415  text of others is rare where this module is imported, and mostly plain

    if ascii_only or unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return character.encode("unicode_escape").decode("ascii")
    return character
