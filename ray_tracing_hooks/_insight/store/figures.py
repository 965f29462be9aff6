"""The figures of a run in a store that comparisons need, by DuckDB.

DuckDB sorts the executions and the spans of the program by subject, out of core. Of these, this process holds the
figures of one subject at a time, about 20 bytes for each; and the statistics of runs in memory are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ray_tracing_hooks._insight.analysis.changes import time_of
from ray_tracing_hooks._insight.analysis.functions import where_of
from ray_tracing_hooks._insight.analysis.measured import (
    FUNCTION,
    ExecutionSample,
    MeasuredFinding,
    MeasuredRun,
    Places,
    Work,
    self_times_of,
    step_of,
)
from ray_tracing_hooks._insight.ingest.kept_runs import KeptRun
from ray_tracing_hooks._insight.model.calls import are_waits_recorded
from ray_tracing_hooks._insight.store.tables import SUMS, opened

_ROWS = 1 << 20
"""How many rows come from DuckDB at once."""

_RESOURCES = "SELECT DISTINCT coalesce(resource_attributes, '') AS resource FROM spans"

_OF_ALL = "start_ns, file, file_row_number, resource_attributes, span_attributes, error_type"
_EXECUTIONS = (
    "SELECT 'function' AS subject_kind, ray_function AS subject, ray_self_ns AS self_ns, ray_failed AS failed, "  # noqa: S608
    f"ray_is_retry AS is_retry, {_OF_ALL} FROM corrected WHERE ray_role = 'execution'"
)
_OF_PROGRAM = (
    "SELECT subject_kind, subject, subject_self_ns, status_code = 2 OR state = 'lost', false, "  # noqa: S608
    f"{_OF_ALL} FROM corrected WHERE subject_kind IS NOT NULL"
)
_CALLS = (
    "(SELECT 'function' AS subject_kind, ray_function AS subject, ray_role, ray_queue_ns, duration_time_unix_nano, "
    "start_ns, file, file_row_number FROM corrected)"
)
_ORDER = "start_ns, file, file_row_number"
_OF_SUBJECT = "FROM executions WHERE subject_kind = ? AND subject = ?"

_Key = tuple[str, str]
"""The kind and the name of a subject."""


class StoredRun(MeasuredRun):
    """A run in a store. Its properties and ``work`` raise ImportError without DuckDB, and OSError if the files cannot
    be read.
    """

    def __init__(self, run: KeptRun) -> None:
        known = run.document
        quality = known["quality"]
        super().__init__(
            id=run.id,
            name=str(known["program"].get("name") or ""),
            session=str(known["cluster"].get("session") or ""),
            job=str(known["cluster"].get("job") or ""),
            start=run.start_ns,
            wall=known["wall_ns"],
            spans=run.spans,
            calls=known["counts"]["calls"],
            state=known["state"],
            is_cut=known["state"] == "unknown",
            is_partial=any(quality[name] for name in ("bad_lines", "bad_spans", "incomplete_files", "dropped")),
            lost_parents=quality["lost_parents"],
            waits=known["waits"],
            is_sampled=known["is_sampled"],
        )
        self._run = run

    @cached_property
    def resources(self) -> Mapping[int, Mapping[str, Any]]:
        with opened(self._run.files) as database:
            found = database.execute(f"{_RESOURCES} ORDER BY resource").fetchall()
        return {number: _decoded(text) for number, (text,) in enumerate(found)}

    @property
    def split(self) -> Mapping[str, int] | None:
        found: Mapping[str, int] | None = self._run.document["time_split"]
        return found

    @property
    def findings(self) -> Sequence[MeasuredFinding]:
        return [
            MeasuredFinding(each["kind"], each["subject"], each["text"], each["cost_ns"])
            for each in self._run.document["findings"]
        ]

    def work(self, places: Places, wanted: Callable[[str], bool] = bool) -> dict[tuple[str, str], Work]:
        with self._opened() as database:
            return self._work(database, places, wanted)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """A connection with the views ``corrected``, whose ``start_ns`` is by one clock, and ``executions``: those of
        functions, and the spans of the program.
        """
        start = "epoch_ns(start_time_unix_nano) + clock_shift_ns AS start_ns"
        with opened(self._run.files) as database:
            database.execute(f"CREATE TEMP VIEW corrected AS SELECT *, {start} FROM spans")  # noqa: S608  this module's text
            database.execute(f"CREATE TEMP VIEW executions AS {_EXECUTIONS} UNION ALL {_OF_PROGRAM}")
            yield database

    def _work(self, database: Any, places: Places, wanted: Callable[[str], bool]) -> dict[_Key, Work]:
        (is_some,) = database.execute("SELECT bool_or(ray_role IN ('get', 'wait')) FROM spans").fetchone()
        recorded = [number for number, each in self.resources.items() if are_waits_recorded(each, some=bool(is_some))]
        # The text of the queries is this module's.
        rows = database.execute(
            f"SELECT 'function', ray_function, {SUMS['calls']}, {SUMS['on_path_ns']}, "  # noqa: S608
            "coalesce(bool_or(ray_self_is_assumed OR ray_self_ns < ray_run_ns), false) "
            "FROM spans WHERE ray_function IS NOT NULL GROUP BY ray_function "
            "UNION ALL SELECT subject_kind, subject, count(*), NULL, bool_or(subject_makes_calls) "
            "FROM spans WHERE subject_kind IS NOT NULL GROUP BY ALL"
        ).fetchall()
        found = {
            (kind, name): Work(kind, calls=calls, on_path=on_path, may_wait=may_wait)
            for kind, name, calls, on_path, may_wait in rows
            if wanted(name)
        }
        database.execute(
            "CREATE TEMP TABLE subjects AS SELECT unnest($1) AS subject_kind, unnest($2) AS subject, "
            "unnest(range(len($1))) AS number",
            [[kind for kind, _ in found], [name for _, name in found]],
        )
        database.execute(
            "CREATE TEMP TABLE resources AS SELECT resource, row_number() OVER (ORDER BY resource) - 1 AS process "  # noqa: S608
            f"FROM ({_RESOURCES})"
        )
        for key, own, process, failed, is_retry in _by_subject(
            database,
            [*found],
            "self_ns, process, failed, is_retry",
            "executions",
            "JOIN resources ON resource = coalesce(resource_attributes, '')",
        ):
            work = found[key]
            work.executions, work.total, work.failed = len(own), int(own.sum()), int(failed.sum())
            work.retries = int(is_retry.sum())
            is_function = work.kind == FUNCTION
            work.own = self_times_of(own, process if is_function else ())
            for place, numbers in places.items() if is_function else ():
                chosen = np.isin(process, list(numbers))
                work.places[place] = self_times_of(own[chosen], process[chosen])
            work.waits = where_of(int(np.isin(process, recorded).sum()), len(own))
            work.sample, work.errors = self._sample_of(key, len(own)), self._errors_of(key)
        since = "start_ns - ray_queue_ns, "
        for key, times in _by_subject(
            database, [*found], "ray_queue_ns", _CALLS, "WHERE ray_queue_ns IS NOT NULL", since
        ):
            found[key].queued = time_of(times, is_queue=True)
        is_known = "WHERE ray_role = 'submission' AND duration_time_unix_nano IS NOT NULL"
        for key, times in _by_subject(database, [*found], "duration_time_unix_nano", _CALLS, is_known):
            found[key].submitting = time_of(times)
        return found

    def _sample_of(self, key: _Key, many: int) -> Callable[[int], ExecutionSample]:
        def sample(most: int) -> ExecutionSample:
            with self._opened() as database:
                rows = database.execute(
                    "WITH numbered AS (SELECT file, file_row_number, row_number() OVER (ORDER BY "  # noqa: S608
                    f"{_ORDER}) - 1 AS place {_OF_SUBJECT}) "
                    "SELECT self_ns, failed, resource_attributes, span_attributes FROM (SELECT * "
                    f"{_OF_SUBJECT}) JOIN numbered USING (file, file_row_number) WHERE place % ? = 0 ORDER BY place",
                    [*key, *key, step_of(many, most)],
                ).fetchall()
            own, failed = (np.array([row[column] for row in rows]) for column in (0, 1))
            spans = ((place, _decoded(row[2]), _decoded(row[3])) for place, row in enumerate(rows))
            return ExecutionSample(own, failed, spans)

        return sample

    def _errors_of(self, key: _Key) -> Callable[[], Mapping[str, int]]:
        def errors() -> Mapping[str, int]:
            with self._opened() as database:
                return dict(
                    database.execute(
                        f"SELECT coalesce(error_type, ''), count(*) {_OF_SUBJECT} AND failed "
                        "GROUP BY 1 ORDER BY min(start_ns)",
                        [*key],
                    ).fetchall()
                )

        return errors


def _by_subject(
    database: Any, subjects: Sequence[_Key], columns: str, spans: str, which: str, order: str = ""
) -> Iterator[tuple[Any, ...]]:
    """By subject, NumPy columns of its spans, in order."""
    found = database.sql(
        f"SELECT number, {columns} FROM subjects JOIN {spans} USING (subject_kind, subject) {which} "  # noqa: S608  as above
        f"ORDER BY number, {order}{_ORDER}"
    )
    # DuckDB 2 has given it another name.
    read = found.to_arrow_reader if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader
    pending: list[list[Any]] = []
    for batch in read(_ROWS):
        numbers, *values = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        begins = np.flatnonzero(np.diff(numbers)) + 1
        for each in zip(*(np.split(column, begins) for column in (numbers, *values)), strict=True):
            if pending and len(each[0]) and pending[0][0][0] != each[0][0]:
                yield _joined(subjects, pending)
                pending = []
            if len(each[0]):
                pending.append([*each])
    if pending:
        yield _joined(subjects, pending)


def _joined(subjects: Sequence[_Key], pending: list[list[Any]]) -> tuple[Any, ...]:
    numbers, *columns = (np.concatenate(each) for each in zip(*pending, strict=True))
    return (subjects[numbers[0]], *columns)


def _decoded(text: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.json.decode(text) if text else {}
    return found
