"""Makes untrusted text (names in a trace, a server's response, an error) safe to show on a terminal and in a log."""

from __future__ import annotations

import re

_UNSAFE = r"[^\x20-\x7e]"
_UNSAFE_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Control and formatting characters (ESC, bidirectional overrides, zero-width), lone surrogates, line separators."""


def safe(text: str, *, ascii_only: bool = False) -> str:
    """Escape everything that could control a terminal, begin a new line or hide part of the text."""
    return re.sub(_UNSAFE, lambda found: _escape(found[0], ascii_only), text)


def _escape(character: str, ascii_only: bool) -> str:
    import unicodedata  # noqa: PLC0415  most processes never need it, since most text is plain

    if ascii_only or unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return character.encode("unicode_escape").decode("ascii")
    return character
