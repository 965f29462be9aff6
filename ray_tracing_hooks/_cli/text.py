"""Text for people: durations both ways, counts, and what goes wrong."""

from __future__ import annotations

import re

import click

from ray_tracing_hooks._escape import safe
from ray_tracing_hooks._insight.analysis.wording import count, duration

__all__ = ["SafeError", "count", "duration", "examples", "parse_duration", "warn"]

_UNITS_NS = {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *([a-zµ]+)")


def parse_duration(text: str) -> int:
    """The nanoseconds of a number with a unit, as ``10ms``; as a ``type`` of options."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS_NS:
        raise click.BadParameter(f"{text!r} is no duration: expected a number and us, ms, s, m or h, as in 10ms")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def examples(*commands: str) -> str:
    """An epilog of a help text that shows these commands, each on a line."""
    # click leaves the lines of a paragraph that begins so as they are.
    return "\b\n" + "\n".join(("Examples:", *(f"  {command}" for command in commands)))


def warn(text: str, kind: str = "warning") -> None:
    """Tell something on stderr. It may quote others, such as the name of a file or the answer of a server."""
    click.echo(f"{kind}: {safe(text)}", err=True)


class SafeError(click.ClickException):
    """Ends the command with exit code 1, and says why without obeying what it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(safe(message))
