"""Options that commands share, types of their values, and the examples of a help text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click

from ray_tracing_hooks._safety.guard import safe
from ray_tracing_hooks._settings.values import MOST_SECONDS

_Command = TypeVar("_Command", bound=Callable[..., Any])

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


class Number(click.ParamType):  # type: ignore[type-arg, unused-ignore]  # generic since click 8.4
    """A whole number from ``least`` to ``most``, or with ``is_seconds`` a number of seconds; a ``type`` for options.
    Anything else is wrong usage.
    """

    def __init__(self, least: int, most: int = MOST_SECONDS, *, is_seconds: bool = False) -> None:
        self.name = "seconds" if is_seconds else "n"
        self._least, self._most, self._is_seconds = least, most, is_seconds

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number that is given. Raises click.BadParameter."""
        number = math.nan
        with suppress(ValueError):
            number = float(value) if self._is_seconds else int(value)
        if not self._least <= number <= self._most:
            kind, example = ("number of seconds", ", such as 30") if self._is_seconds else ("whole number", "")
            expected = f"a {kind} from {self._least:,} to {self._most:,}{example}"
            self.fail(f"{safe(str(value))!r:.99} is not valid: expected {expected}", param, ctx)
        return number


def examples(*commands: str) -> str:
    """The epilog of a help text that shows these commands, one per line."""
    # click does not rewrap a paragraph that begins with this character.
    return "\b\n" + "\n".join(("Examples:", *(f"  {command}" for command in commands)))


paths_argument = click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(readable=False))
trace_option = click.option("--trace", "trace_id", metavar="ID", help="The trace whose id starts with this.")
job_option = click.option("--job", metavar="ID", help="The newest run whose Ray job id starts with this.")
all_option = click.option("--all", "everything", is_flag=True, help="All runs instead of the newest.")
json_option = click.option("--json", "in_json", is_flag=True, help="Print JSON instead of text.")
force_option = click.option("--force", is_flag=True, help="Overwrite an existing file.")
address_option = click.option(
    "--address",
    metavar="ADDRESS",
    help="The cluster: HOST:PORT of its head, or ray://HOST:PORT. By default it is RAY_ADDRESS, or the cluster on this "
    "machine.",
)


def timeout_option(default: int = 30) -> Callable[[_Command], _Command]:
    text = "How long each node may take to answer."
    return click.option("--timeout", type=Number(1, is_seconds=True), default=default, show_default=True, help=text)


def redaction_options(command: _Command) -> _Command:
    """Adds the options ``no_attributes`` and ``redact``, for files that are shared."""
    left_out = click.option("--no-attributes", is_flag=True, help="Write only names, ids, times and outcomes.")
    hidden = click.option(
        "--redact",
        metavar="KEY",
        multiple=True,
        help="Hide the values of this attribute; * and ? are wildcards.",
    )
    return left_out(hidden(command))
