"""Errors of the user's functions in the text of what Ray Data raises from them."""

from __future__ import annotations

import re

_WRAPPED = "\n\nThe above exception was the direct cause of the following exception:"
_BETWEEN = re.compile(r"\n\n(?:The above exception was the direct cause of|During handling of the above).*\n")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_MOST_TEXT = 1000


def without_colours(text: str) -> str:
    """A text without terminal colours, which Ray puts into that of remote errors."""
    return _COLOURS.sub("", text)


def users_error(traceback: str) -> str:
    """``Class: message`` of the error before the last one in a formatted traceback; empty if there is only one."""
    before, found, _ = traceback.rpartition(_WRAPPED)
    if not found:
        return ""
    lines = _BETWEEN.split(before)[-1].strip("\n").splitlines()
    at, is_frame = 0, False
    for number, line in enumerate(lines):
        if line.startswith(("  File ", "  [Previous line", "ray::", "Traceback (most recent")):
            at, is_frame = number + 1, True
        elif is_frame and line.startswith("    "):
            at = number + 1
        else:
            # The message may have several lines, of which some may be indented.
            is_frame = False
    return "\n".join(lines[at:])[:_MOST_TEXT]
