"""Text for users: durations, counts and error messages."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import click

from ray_tracing_hooks._insight.analysis.wording import count, duration
from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings.values import MOST_SECONDS

__all__ = ["SafeError", "Seconds", "count", "duration", "examples", "parse_duration", "until", "warn"]

_UNITS_NS = {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *([a-zµ]+)")


def parse_duration(text: str) -> int:
    """Parse a duration such as ``10ms`` to nanoseconds; a ``type`` for options."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS_NS:
        raise click.BadParameter(f"{text!r} is not a duration: expected a number and us, ms, s, m or h, such as 10ms")
    try:
        return round(float(match[1]) * _UNITS_NS[match[2]])
    except OverflowError:
        raise click.BadParameter(f"{text!r:.30}... is longer than any span") from None


class Seconds(click.FloatRange):
    """A number of seconds, of at least ``least``; a ``type`` for options. Anything else is wrong usage."""

    def __init__(self, least: float) -> None:
        super().__init__(min=least)
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that is given. Raises click.BadParameter."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not self._least <= seconds <= MOST_SECONDS:
            expected = f"a number of seconds from {self._least:g} to {MOST_SECONDS:,}, such as 30"
            self.fail(f"{safe(str(value))!r} is not valid: expected {expected}", param, ctx)
        return seconds


def until(when: float | None) -> str:
    """The end of a sentence about something that lasts until this time, in seconds since the epoch; empty for None."""
    return "" if when is None else time.strftime(" until %Y-%m-%d %H:%M:%S %Z", time.localtime(when))


def examples(*commands: str) -> str:
    """The epilog of a help text that shows these commands, one per line."""
    # click does not rewrap a paragraph that begins with this character.
    return "\b\n" + "\n".join(("Examples:", *(f"  {command}" for command in commands)))


def warn(text: str, kind: str = "warning") -> None:
    """Print a message on stderr. It may quote untrusted text, such as a file name or a server's response."""
    click.echo(f"{kind}: {safe(text)}", err=True)


class SafeError(click.ClickException):
    """Ends the command with exit code 1 and a message, in which untrusted text is escaped."""

    def __init__(self, message: str) -> None:
        super().__init__(safe(message))
