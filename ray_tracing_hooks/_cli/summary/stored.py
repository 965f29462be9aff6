"""The summary of a run in a store by DuckDB or Ray Data: what is known of it, and tables that sum up its spans."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.asking import answering_cluster
from ray_tracing_hooks._cli.engines import RAY, engine_errors
from ray_tracing_hooks._cli.screen import Row, SafeError, TextTable
from ray_tracing_hooks._cli.summary import ray_tables
from ray_tracing_hooks._cli.summary.document import run as run_of
from ray_tracing_hooks._cli.summary.text import function_table
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun
from ray_tracing_hooks._insight.ingest.sources import unfetched
from ray_tracing_hooks._insight.store.figures import StoredRun
from ray_tracing_hooks._insight.store.tables import functions
from ray_tracing_hooks._insight.views.requests import PERCENTILES
from ray_tracing_hooks._ops.cluster import ConnectError, connected


def document(run: KeptRun, engine: str, address: str | None) -> dict[str, Any]:
    """Part of the document of a summary: ``run``, ``quality``, ``functions``, ``findings``. Ends the command with exit
    code 1 if that cannot be computed. ``engine`` is ``duckdb``, or ``ray`` for the cluster at this address.
    """
    known = run.document
    if engine == RAY:
        found = _by_ray(run, address)
    else:
        with engine_errors(f"--engine {engine}"):
            found = functions(run.files, PERCENTILES)
    return {
        "version": 1,
        "engine": engine,
        "run": run_of(StoredRun(run)),
        "quality": known["quality"],
        "functions": found,
        "findings": known["findings"],
        "hidden": run.hidden,
    }


def _by_ray(run: KeptRun, address: str | None) -> list[dict[str, Any]]:
    """The functions of a run over a cluster, whose nodes read the files."""
    found = answering_cluster(address)
    system, names = unfetched(run.folder)
    files = names or [os.path.abspath(each) for each in run.files]
    try:
        with connected(found), engine_errors(f"--engine {RAY}", "ray[data]"):
            return ray_tables.functions(files, PERCENTILES, system)
    except ConnectError as error:
        raise SafeError(f"the connection to {found} fails: {error}") from None


def lines(found: dict[str, Any]) -> Iterator[str | Row]:
    """The same as text."""
    for part in parts(found):
        if isinstance(part, TextTable):
            yield from part.lines()
        else:
            yield part
    yield ""
    engine, spans = "Ray Data" if found["engine"] == RAY else "DuckDB", count(found["run"]["spans"], "span")
    more = "; --engine memory shows more, with more memory"
    if found["hidden"]:
        more = f", with figures from when the run was stored, as {inputs.lacks(found['hidden'])}"
    yield f"{engine} computed this from {spans}{more}."


def parts(found: dict[str, Any]) -> Iterator[str | TextTable]:
    """The sentences and tables of a summary."""
    run, every = found["run"], found["functions"]
    start = datetime.fromtimestamp(run["start_unix_nano"] / 1e9).astimezone()
    contents = f"{count(run['calls'], 'call')} of {count(len(every), 'function')}, {count(run['spans'], 'span')}"
    yield f"{plain(run['name'])} took {duration(run['wall_ns'])}   {start:%Y-%m-%d %H:%M:%S}   {contents}"
    yield ""
    yield f"Findings, from when the run was stored{'' if found['findings'] else ': none'}"
    for number, each in enumerate(found["findings"], start=1):
        cost = f": at most {duration(each['cost_ns'])}, {percent(each['share'])} of the run" if each["share"] else ""
        yield f"{number:2}. {each['title']}{cost}"
    yield from function_table(every)
