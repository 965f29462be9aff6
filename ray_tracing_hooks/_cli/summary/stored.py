"""The summary of a run in a store by DuckDB: what is known of the run, and the tables that are sums over its spans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ray_tracing_hooks._cli.screen import Row, SafeError, aligned
from ray_tracing_hooks._cli.summary.requests import PERCENTILES
from ray_tracing_hooks._insight.analysis.wording import count, duration, percent, plain
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun
from ray_tracing_hooks._insight.store.tables import functions

LARGE = 5_000_000
"""From this number of spans on, DuckDB makes the summary unless it is told not to: in memory they take a gibibyte."""

_SHOWN = 8


def spans_of(run: KeptRun) -> int:
    """The number of spans of a run."""
    return sum(int(each.get("rows") or 0) for each in run.document.get("files") or ())


def document(run: KeptRun) -> dict[str, Any]:
    """Part of the document of a summary: ``run``, ``quality``, ``functions``, ``findings``. Ends the command with exit
    code 1 if that cannot be computed.
    """
    known = run.document
    try:
        found = functions(run.files, PERCENTILES)
    except ImportError:
        raise SafeError("--engine duckdb needs duckdb: pip install 'ray-tracing-hooks[insight]'") from None
    except OSError as error:
        raise SafeError(f"{run.folder}: {error.strerror}") from None
    return {
        "version": 1,
        "engine": "duckdb",
        "run": {
            "name": known["program"]["name"],
            "session": known["cluster"]["session"] or "",
            "job": known["cluster"]["job"] or "",
            "start_unix_nano": known["start_unix_nano"],
            "wall_ns": known["wall_ns"],
            "spans": spans_of(run),
            "calls": sum(each["calls"] for each in found),
            "state": known["state"],
        },
        "quality": known["quality"],
        "functions": found,
        "findings": known.get("findings") or [],
    }


def lines(found: dict[str, Any]) -> Iterator[str | Row]:
    """The same as text."""
    run, every = found["run"], found["functions"]
    start = datetime.fromtimestamp(run["start_unix_nano"] / 1e9).astimezone()
    contents = f"{count(run['calls'], 'call')} of {count(len(every), 'function')}, {count(run['spans'], 'span')}"
    yield f"{plain(run['name'])} took {duration(run['wall_ns'])}   {start:%Y-%m-%d %H:%M:%S}   {contents}"
    yield ""
    yield f"Findings, from when the run was stored{'' if found['findings'] else ': none'}"
    for number, each in enumerate(found["findings"], start=1):
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
        yield from aligned(("FUNCTION", "CALLS", "SELF TIME", "MEDIAN", "P95", "MAX", "QUEUED", "FAILED"), rows)
        if more := len(every) - len(rows):
            yield f" and {count(more, 'other function')}"
    yield ""
    yield f"DuckDB computed this from {count(run['spans'], 'span')}; --engine memory shows more, and takes more memory."
