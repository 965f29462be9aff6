"""``ray-tracing-hooks runs``: lists the runs of a store, or of a folder of spans."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import click

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.options import Number, examples, json_option, paths_argument
from ray_tracing_hooks._cli.screen import Row, SafeError, aligned, print_lines
from ray_tracing_hooks._insight.analysis.wording import duration, shortened
from ray_tracing_hooks._insight.model.runs import part_of, run_id
from ray_tracing_hooks._insight.model.runs import runs as runs_of
from ray_tracing_hooks._insight.store.about import about

_TITLES = ("PROGRAM", "RUN", "JOB", "STARTED", "TOOK", "CALLS", "ERRORS")
_FINDING = 90


@click.command(
    epilog=examples(
        "ray-tracing-hooks runs",
        "ray-tracing-hooks runs /data/runs --name 'train*' --errors",
        "ray-tracing-hooks runs s3://bucket/runs --json",
    ),
)
@paths_argument
@click.option("--name", metavar="PATTERN", help="Only programs whose name contains this, or matches it with * or ?.")
@click.option("--job", metavar="ID", help="Only runs whose Ray job id starts with this.")
@click.option("--errors", is_flag=True, help="Only runs in which a call or a span failed.")
@click.option("--last", type=Number(1), default=20, show_default=True, help="List this many runs, the newest first.")
@json_option
def runs(paths: tuple[str, ...], name: str | None, job: str | None, errors: bool, last: int, in_json: bool) -> None:
    """List runs, the newest first: program, job, start, duration, calls, errors, and the costliest finding.

    PATH is a store of runs, or a folder or a file of spans; by default RAY_TRACING_LOCAL_DIR, /tmp/spans. Of a store,
    only the descriptions of its runs are read.

    Other commands take a run of a PATH as PATH@RUN, in which RUN is latest, latest~1 for the run before it and so on,
    or the beginning of the id in the column RUN. Without a PATH, @RUN is a run of the default folder.
    """
    found = (
        each
        for each in _documents(paths)
        if (name is None or _is_named(_of(each, "program", "name") or "", name))
        and (job is None or str(_of(each, "cluster", "job") or "").startswith(job.lower()))
        and (not errors or _of(each, "counts", "failed"))
    )
    shown = list(islice(found, last))
    if in_json:
        click.echo(json.dumps(shown))
    elif shown:
        print_lines(_lines(shown))
    else:
        raise SafeError("none of the runs is like that (--name, --job, --errors)")


def _documents(paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What is known of each run, as in its ``run.json``, the newest first."""
    which = inputs.Which(everything=not any(map(inputs.run_of, paths)))
    files = which.files(paths, fetches=False)
    if which.kept:
        yield from (run.document for run in which.kept)
        return
    table, _ = which.of(which.read(files, paths))
    for run in runs_of(table):
        part = part_of(table, run)
        yield {"id": run_id(part, run), **about(inputs.analysed(part, which.folders), part)}


def _is_named(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) if set("*?") & set(pattern) else pattern in name


def _of(document: dict[str, Any], *members: str) -> Any:
    found: Any = document
    for member in members:
        found = found.get(member) if isinstance(found, dict) else None
    return found


def _lines(shown: Sequence[dict[str, Any]]) -> Iterator[str | Row]:
    titles, *rows = aligned(_TITLES, [_cells(each) for each in shown])
    yield titles
    for each, row in zip(shown, rows, strict=True):
        yield row
        for verdict in (each.get("findings") or [])[:1]:
            cost = verdict.get("cost_ns")
            title = shortened(str(verdict.get("title")), _FINDING)
            yield f"   -> {title}{f' (at most {duration(cost)})' if cost else ''}"


def _cells(each: dict[str, Any]) -> tuple[str, ...]:
    took = duration(_of(each, "wall_ns") or 0)
    return (
        _of(each, "program", "name") or "",
        str(each.get("id") or ""),
        str(_of(each, "cluster", "job") or "-"),
        f"{datetime.fromtimestamp((_of(each, 'start_unix_nano') or 0) / 1e9).astimezone():%Y-%m-%d %H:%M:%S}",
        {"running": f"{took}, running", "unknown": f"at least {took}"}.get(str(each.get("state")), took),
        f"{_of(each, 'counts', 'calls') or 0:,}",
        f"{_of(each, 'counts', 'failed') or 0:,}",
    )
