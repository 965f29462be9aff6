"""The summary of a run in a store by DuckDB or Ray Data: what is known of it, and tables that sum up its spans."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from ray_tracing_hooks._cli import inputs
from ray_tracing_hooks._cli.asking import answering_cluster
from ray_tracing_hooks._cli.engines import RAY, engine_errors
from ray_tracing_hooks._cli.screen import Row, SafeError, Table, warn
from ray_tracing_hooks._cli.summary import ray_tables
from ray_tracing_hooks._cli.summary.document import run as run_of
from ray_tracing_hooks._cli.summary.requests import PERCENTILES
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain
from ray_tracing_hooks._insight.ingest.backends import BACKENDS
from ray_tracing_hooks._insight.ingest.files import PARQUET, is_span_file
from ray_tracing_hooks._insight.ingest.kept_runs import PREFIX, KeptRun
from ray_tracing_hooks._insight.ingest.sources import is_elsewhere, listed, named, shown, unfetched
from ray_tracing_hooks._insight.store.figures import StoredRun
from ray_tracing_hooks._insight.store.tables import functions
from ray_tracing_hooks._ops.cluster import ConnectError, connected

_SHOWN = 8


def document(run: KeptRun, engine: str, address: str | None) -> dict[str, Any]:
    """Part of the document of a summary: ``run``, ``quality``, ``functions``, ``findings``. Ends the command with exit
    code 1 if that cannot be computed. ``engine`` is ``duckdb``, or ``ray`` for the cluster at this address.
    """
    known = run.document
    if engine == RAY:
        system, names = unfetched(run.folder)
        found, _ = _by_ray(named(run.folder), names or run.files, system, address, known["read_unix_nano"])
    else:
        with engine_errors(f"--engine {engine}"):
            found = functions(run.files, PERCENTILES)
    return _document(engine, run_of(StoredRun(run)), known["quality"], found, known.get("findings") or [], run.hidden)


def _document(
    engine: str, run: dict[str, Any], quality: Any, functions: Any, findings: Any, hidden: Sequence[str] = ()
) -> dict[str, Any]:
    return {
        "version": 1,
        "engine": engine,
        "run": run,
        "quality": quality,
        "functions": functions,
        "findings": findings,
        "hidden": [*hidden],
    }


def tables(paths: Sequence[str]) -> tuple[Any, list[str]]:
    """The file system of the Parquet files below a path, None for this machine; and these files. There are none for
    several paths, for a back end, for a store or a run of it, and beside other files of spans. Ends the command with
    exit code 1 if the path cannot be read.
    """
    if len(paths) != 1 or inputs.run_of(paths[0]) or paths[0].partition(":")[0] in BACKENDS:
        return None, []
    (place,) = paths
    with inputs.errors():
        if is_elsewhere(place):
            system, _, names = listed(place)
        else:
            system, names = None, [place] if os.path.isfile(place) else []
            names += [os.path.join(at, name) for at, _, files in os.walk(place) for name in files]
    is_store = any(os.path.basename(os.path.dirname(name)).startswith(PREFIX) for name in names)
    files = sorted(filter(is_span_file, names))
    return system, files if all(name.endswith(PARQUET) for name in files) and not is_store else []


def document_of_tables(place: str, files: Sequence[str], system: Any, address: str | None) -> dict[str, Any]:
    """As :func:`document` by Ray Data, of files that belong to no run. Ends the command without a span, too.
    ``findings`` is null: nothing looks for any.
    """
    found, spans = _by_ray(shown(place), files, system, address)
    known = spans or ray_tables.Spans(0, 0, 0, 0)
    if not known.spans:
        raise SafeError(f"no spans in {shown(place)}: no row of its tables can be read as one")
    about = {
        "name": os.path.basename(shown(place).rstrip("/")),
        "session": "",
        "job": "",
        "start_unix_nano": known.start,
        "wall_ns": known.end - known.start,
        "spans": known.spans,
        "calls": sum(each["calls"] for each in found),
        "state": "unknown",
    }
    return _document(RAY, about, {"bad_spans": known.unreadable}, found, None)


def _by_ray(
    place: str, files: Sequence[str], system: Any, address: str | None, now_ns: int | None = None
) -> tuple[list[dict[str, Any]], ray_tables.Spans | None]:
    """The functions of a run over a cluster, whose nodes read the files."""
    found = answering_cluster(address)
    try:
        with connected(found), engine_errors(f"--engine {RAY}", "ray[data]"):
            names = list(files) if system is not None else [os.path.abspath(each) for each in files]
            functions_found, spans = ray_tables.functions(names, PERCENTILES, system, now_ns)
    except ConnectError as error:
        raise SafeError(f"the connection to {found} fails: {error}") from None
    if spans is not None and spans.unreadable:
        warn(f"{place}: {count(spans.unreadable, 'row')} of its tables cannot be read as a span")
    return functions_found, spans


def lines(found: dict[str, Any]) -> Iterator[str | Row]:
    """The same as text."""
    for part in parts(found):
        if isinstance(part, Table):
            yield from part.lines()
        else:
            yield part
    yield ""
    engine, spans = "Ray Data" if found["engine"] == RAY else "DuckDB", count(found["run"]["spans"], "span")
    more = "; --engine memory shows more, with more memory"
    if found["hidden"]:
        more = f", with figures from when the run was stored, as {inputs.lacks(found['hidden'])}"
    yield f"{engine} computed this from {spans}{more}."


def parts(found: dict[str, Any]) -> Iterator[str | Table]:
    """The sentences and tables of a summary."""
    run, every = found["run"], found["functions"]
    start = datetime.fromtimestamp(run["start_unix_nano"] / 1e9).astimezone()
    contents = f"{count(run['calls'], 'call')} of {count(len(every), 'function')}, {count(run['spans'], 'span')}"
    yield f"{plain(run['name'])} took {duration(run['wall_ns'])}   {start:%Y-%m-%d %H:%M:%S}   {contents}"
    yield ""
    if found["findings"] is not None:
        yield f"Findings, from when the run was stored{'' if found['findings'] else ': none'}"
    for number, each in enumerate(found["findings"] or [], start=1):
        cost = f": at most {duration(each['cost_ns'])}, {percent(each['share'])} of the run" if each["share"] else ""
        yield f"{number:2}. {each['title']}{cost}"
    rows = [
        (
            plain(each["function"]),
            f"{each['calls']:,}",
            duration(each["self_ns"]),
            *(duration(each["self"][f"{name}_ns"]) if each["self"] else "" for name in ("median", "p95", "max")),
            duration(each["queued"]["median_ns"]) if each["queued"] else "",
            f"{each['failed']:,}" if each["failed"] else "",
        )
        for each in every[:_SHOWN]
    ]
    if rows:
        yield ""
        yield "Functions by self time: their own code, without waiting in ray.get"
        yield Table(("FUNCTION", "CALLS", "SELF TIME", "MEDIAN", "P95", "MAX", "QUEUED", "FAILED"), rows)
        if more := len(every) - len(rows):
            yield f" and {count(more, 'other function')}"
