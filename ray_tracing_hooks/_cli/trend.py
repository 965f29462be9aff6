"""``ray-tracing-hooks trend``: a function over the last runs, and where it changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import click

from ray_tracing_hooks._cli.engines import engine_errors, engine_option, runs_of
from ray_tracing_hooks._cli.options import Number, examples, json_option, paths_argument
from ray_tracing_hooks._cli.screen import Row, SafeError, aligned, print_lines
from ray_tracing_hooks._cli.summary.document import run
from ray_tracing_hooks._insight.analysis.comparison import LEAST_RUNS, Trend
from ray_tracing_hooks._insight.analysis.comparison import trend as found_trend
from ray_tracing_hooks._insight.analysis.wording import count, duration

VERSION = 1
_LAST = 20


@click.command(
    epilog=examples(
        "ray-tracing-hooks trend spans",
        "ray-tracing-hooks trend spans --function Store.update --last 50",
    ),
)
@paths_argument
@click.option("--function", metavar="NAME", default="", help="A function, method or span instead of whole runs.")
@click.option("--last", type=Number(2), default=_LAST, show_default=True, help="How many of the newest runs are read.")
@engine_option
@json_option
def trend(paths: tuple[str, ...], function: str, last: int, engine: str | None, in_json: bool) -> None:
    """Show how long runs took, or the self time of a function in each of them, and from which run on that changed.

    PATH is a folder or a file of spans with several runs; by default RAY_TRACING_LOCAL_DIR, /tmp/spans. The runs are
    those of the program that ran last.
    """
    runs = runs_of(paths, engine, everything=True, last=last)
    runs = [each for each in runs if each.name == runs[-1].name]
    with engine_errors("finding changes"):
        found = found_trend(runs, function)
    if not found.points:
        known = f"{count(len(runs), 'run')} of {runs[-1].name}"
        wanted = f"no function, method or span of {known} is named {function!r} (--function)"
        raise SafeError(wanted if function else f"none of {known} has a known end")
    if in_json:
        click.echo(json.dumps(_document(found)))
    else:
        print_lines(_lines(found))


def _lines(found: Trend) -> Iterator[str | Row]:
    points = found.points
    what = f"{found.function}: the self time of a call" if found.function else "The duration"
    yield f"{what} in {count(len(points), 'run')} of {points[-1].run.name}"
    shifts = {each.point: f"x{each.now / each.before:.2f} from here on" for each in found.shifts}
    rows = [
        (
            f"{datetime.fromtimestamp(point.run.start / 1e9).astimezone():%Y-%m-%d %H:%M:%S}",
            point.run.job,
            f"{point.calls:,}",
            duration(point.time),
            shifts.get(number, ""),
        )
        for number, point in enumerate(points)
    ]
    yield from aligned(("RUN", "JOB", "CALLS", "TIME", "CHANGE"), rows)
    if found.left_out:
        lacks = "without a call of it" if found.function else "without a known end"
        yield f" Left out: {count(found.left_out, 'run')} {lacks}."
    if len(points) < LEAST_RUNS:
        yield f" With fewer than {LEAST_RUNS} runs, chance explains almost any change."
    elif not shifts:
        yield " No change exceeds the differences between runs."


def _document(found: Trend) -> dict[str, Any]:
    """The document of ``--json``; ``shifts`` is null for fewer runs than it needs."""
    shifts = [{"run": each.point, "before_ns": round(each.before), "ns": round(each.now)} for each in found.shifts]
    return {
        "version": VERSION,
        "function": found.function or None,
        "runs": [run(each.run) | {"calls": each.calls, "time_ns": round(each.time)} for each in found.points],
        "shifts": shifts if len(found.points) >= LEAST_RUNS else None,
    }
