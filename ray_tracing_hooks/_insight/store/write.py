"""Writes runs to a store.

A run is a folder ``run=<id>`` with Parquet files of spans (:mod:`~ray_tracing_hooks._insight.store.columns`), the task
states and the samples of nodes in this time, if there are such, and ``run.json``. That is written last and names the
files, so a reader sees a run as a whole or not at all, and an earlier copy of the run stays until then. The files have
new names each time.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.otlp import METRICS
from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.queues import state_files
from ray_tracing_hooks._insight.ingest.kept_runs import FORMAT, PREFIX, RUN_FILE, VERSION
from ray_tracing_hooks._insight.ingest.utilization import lines_between
from ray_tracing_hooks._insight.model.runs import Run, part_of, run_id, runs, sessions
from ray_tracing_hooks._insight.model.table import Table
from ray_tracing_hooks._insight.store.about import about
from ray_tracing_hooks._insight.store.columns import COLUMNS, Stored
from ray_tracing_hooks._insight.store.targets import Target
from ray_tracing_hooks._insight.views.redaction import Redaction

_ROWS = 64 * 1024
"""Rows in a row group, which is the unit held in memory."""

_ROWS_OF_FILE = 1 << 20
"""Rows in a file: several processes read those of a large run."""


class Store:
    """Writes runs to a target."""

    def __init__(
        self,
        target: Target,
        analysed: Callable[[Table], Analysis],
        folders: Sequence[str],
        redaction: Redaction | None = None,
        on_spans: Callable[[int], None] = lambda _count: None,
    ) -> None:
        """``analysed`` analyzes a run, and ``folders`` may hold its task states and samples of nodes. ``on_spans`` is
        called with the number of spans written since the previous call. Raises ImportError without pyarrow.
        """
        # Imported here because they are large, not needed elsewhere, and not installed where types are checked.
        self._arrow, self._parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        self._target, self._analysed, self._folders = target, analysed, folders
        self._redaction, self._on_spans = redaction or Redaction(), on_spans

    def keep(
        self, table: Table, more: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _known: {}
    ) -> list[dict[str, Any]]:
        """Write all runs of a table; returns what their ``run.json`` says. ``more`` returns what replaces parts of it.

        Raises TargetError.
        """
        return [self._keep(part_of(table, run), run, more) for run in _together(table)]

    def _keep(self, table: Table, run: Run, more: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        found = run_id(table, run)
        folder = PREFIX + found
        analysis = self._analysed(table)
        rows = Stored(analysis, table, self._redaction)
        before = self._target.read(f"{folder}/{RUN_FILE}")
        token = secrets.token_hex(4)
        files = [
            self._write(rows, folder, f"traces-{token}-{number:04}.parquet", range(first, last))
            for number, (first, last) in enumerate(_pieces(len(table)))
        ]
        others = []
        for plain, lines in _beside(self._folders, analysis, self._redaction):
            stem, _, suffix = plain.rpartition(".")
            name = f"{stem}-{token}.{suffix}"
            with self._target.create(f"{folder}/{name}") as out:
                out.writelines(lines)
            others.append(name)
        known = about(analysis, table, self._redaction)
        document = {
            "format": FORMAT,
            "version": VERSION,
            "id": found,
            "written_unix_nano": time.time_ns(),
            **known,
            **more(known),
            "files": files,
            "beside": others,
        }
        with self._target.create(f"{folder}/{RUN_FILE}") as out:
            out.write(json.dumps(document, indent=1).encode() + b"\n")
        named = frozenset({RUN_FILE, *others, *(each["name"] for each in files)})
        self._target.remove(folder, others=named, known=_names(before))
        return document

    def _write(self, rows: Stored, folder: str, name: str, wanted: range) -> dict[str, Any]:
        """Write some rows as a file; returns what ``run.json`` says of it."""
        arrow = self._arrow
        kinds = {
            "string": arrow.string(),
            "boolean": arrow.bool_(),
            "int32": arrow.int32(),
            "int64": arrow.int64(),
            "timestamp": arrow.timestamp("ns"),
        }
        schema = arrow.schema(
            [(column.name, kinds[column.kind]) for column in COLUMNS], {"ray_tracing_hooks.version": str(VERSION)}
        )
        with (
            self._target.create(f"{folder}/{name}") as out,
            self._parquet.ParquetWriter(out, schema, compression="zstd") as writer,
        ):
            for first in range(wanted.start, wanted.stop, _ROWS):
                group = range(first, min(first + _ROWS, wanted.stop))
                columns = zip(rows.columns(group), schema, strict=True)
                arrays = [arrow.array(values, each.type, mask=mask) for (_, values, mask), each in columns]
                writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
                self._on_spans(len(group))
        return {"name": name, "rows": len(wanted)}


def _pieces(size: int) -> Iterator[tuple[int, int]]:
    for first in range(0, size, _ROWS_OF_FILE):
        yield first, min(first + _ROWS_OF_FILE, size)


_OF_STATES = (names.RESOURCE_SESSION_NAME, names.RAY_JOB_ID, names.RAY_TASK_ID, names.RAY_NAME)
"""The attributes that task states have by other names."""

_KEY = re.compile(rb'"key": *"([^"]*)"')
"""The key of an attribute in a line of OTLP-JSON."""


def _beside(folders: Sequence[str], analysis: Analysis, redaction: Redaction) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Files to write beside the spans of a run, from what is in these folders: names and lines.

    None if attributes are not shown, and none of which an attribute is hidden.
    """
    table = analysis.table
    if not redaction.attributes:
        return
    wanted, its_sessions = set(table.ids), sessions(table)
    for path in state_files(folders) if not any(map(redaction.hides, _OF_STATES)) else ():
        try:
            said, attempts = task_states.read(path)
            if not said.session or not its_sessions or said.session in its_sessions:
                found = [attempt for attempt in attempts if attempt.task_id in wanted]
                if found:
                    yield task_states.file_name(said.session), task_states.lines(said, found)
        except (OSError, ValueError):
            continue  # whoever analyzed the run has said so
    samples = list(lines_between(folders, table.start[0], table.now_ns))
    if samples and not any(redaction.hides(key.decode()) for line in samples for key in _KEY.findall(line)):
        yield f"{METRICS.name}/samples.jsonl", samples


def _names(document: bytes | None) -> frozenset[str]:
    """The files that an earlier ``run.json`` names."""
    try:
        found = json.loads(document or b"{}")
        return frozenset([*(str(each["name"]) for each in found.get("files") or ()), *found.get("beside", ())])
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def _together(table: Table) -> list[Run]:
    """The runs of a table. Traces of no job, which may be many, count as one."""
    found = runs(table)
    traces = set(table.traces)
    jobless = [run for run in found if run.job in traces]
    if len(jobless) < 2:
        return found
    first = jobless[-1]
    rows = sorted(row for run in jobless for row in run.rows)
    return [
        *(run for run in found if run.job not in traces),
        Run(first.session, first.job, type(first.rows)("I", rows)),
    ]
