"""Text for people: durations both ways, counts, and what goes wrong."""

from __future__ import annotations

import re

import click

from ray_tracing_hooks._escape import safe

_UNITS_NS = {"us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *([a-zµ]+)")


def parse_duration(text: str) -> int:
    """The nanoseconds of a number with a unit, as ``10ms``; as a ``type`` of options."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or match[2] not in _UNITS_NS:
        raise click.BadParameter(f"{text!r} is no duration: expected a number and us, ms, s, m or h, as in 10ms")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def duration(nanoseconds: float) -> str:
    """A duration to three digits: ``812 us``, ``1.23 ms``, ``45.6 s``, ``2m 05s``, ``1h 02m``."""
    if nanoseconds < 999.5e3:
        return f"{_three_digits(nanoseconds / 1e3)} us"
    if nanoseconds < 999.5e6:
        return f"{_three_digits(nanoseconds / 1e6)} ms"
    if nanoseconds < 59.95e9:
        return f"{_three_digits(nanoseconds / 1e9)} s"
    seconds = round(nanoseconds / 1e9)
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    return f"{seconds // 3600}h {seconds // 60 % 60:02}m"


def _three_digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 error``, ``1,204 spans``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def warn(text: str, kind: str = "warning") -> None:
    """Tell something on stderr. It may quote others, such as the name of a file or the answer of a server."""
    click.echo(f"{kind}: {safe(text)}", err=True)


class SafeError(click.ClickException):
    """Ends the command with exit code 1, and says why without obeying what it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(safe(message))
