"""The figures of a run in a store that comparisons need, by DuckDB.

DuckDB sorts the executions of a run by function, out of core. Of these, this process holds the figures of one function
at a time, about 20 bytes for each execution; and the statistics of runs in memory are made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from ray_tracing_hooks._insight.analysis.changes import time_of
from ray_tracing_hooks._insight.analysis.functions import where_of
from ray_tracing_hooks._insight.analysis.measured import (
    FUNCTION,
    MeasuredFinding,
    MeasuredRun,
    Places,
    Sample,
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
_OF_FUNCTION = "FROM spans WHERE ray_role = 'execution' AND ray_function = ?"


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
            kinds=frozenset({FUNCTION}),
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
        with opened(self._run.files) as database:
            return {(FUNCTION, name): work for name, work in self._work(database, places, wanted).items()}

    def _work(self, database: Any, places: Places, wanted: Callable[[str], bool]) -> dict[str, Work]:
        (is_some,) = database.execute("SELECT bool_or(ray_role IN ('get', 'wait')) FROM spans").fetchone()
        recorded = [number for number, each in self.resources.items() if are_waits_recorded(each, some=bool(is_some))]
        found = {}
        for name, *sums in database.execute(
            f"SELECT ray_function, {SUMS['calls']}, {SUMS['on_path_ns']}, "  # noqa: S608  this module's text
            "coalesce(bool_or(ray_self_is_assumed OR ray_self_ns < ray_run_ns), false) "
            "FROM spans WHERE ray_function IS NOT NULL GROUP BY ray_function"
        ).fetchall():
            if wanted(name):
                found[name] = Work(FUNCTION, calls=sums[0], on_path=sums[1], may_wait=sums[2])
        database.execute(
            "CREATE TEMP TABLE functions AS SELECT unnest($1) AS ray_function, unnest(range(len($1))) AS number",
            [[*found]],
        )
        database.execute(
            "CREATE TEMP TABLE resources AS SELECT resource, row_number() OVER (ORDER BY resource) - 1 AS process "  # noqa: S608
            f"FROM ({_RESOURCES})"
        )
        for name, own, process, failed, is_retry in _by_function(
            database,
            [*found],
            "ray_self_ns, process, ray_failed, ray_is_retry",
            "JOIN resources ON resource = coalesce(resource_attributes, '') WHERE ray_role = 'execution'",
        ):
            work = found[name]
            work.executions, work.total, work.failed = len(own), int(own.sum()), int(failed.sum())
            work.retries = int(is_retry.sum())
            work.own = self_times_of(own, process)
            for place, numbers in places.items():
                chosen = np.isin(process, list(numbers))
                work.places[place] = self_times_of(own[chosen], process[chosen])
            work.waits = where_of(int(np.isin(process, recorded).sum()), len(own))
            work.sample, work.errors = self._sample_of(name, len(own)), self._errors_of(name)
        since = "epoch_ns(start_time_unix_nano) - ray_queue_ns, "
        for name, times in _by_function(database, [*found], "ray_queue_ns", "WHERE ray_queue_ns IS NOT NULL", since):
            found[name].queued = time_of(times, is_queue=True)
        is_known = "WHERE ray_role = 'submission' AND duration_time_unix_nano IS NOT NULL"
        for name, times in _by_function(database, [*found], "duration_time_unix_nano", is_known):
            found[name].submitting = time_of(times)
        return found

    def _sample_of(self, name: str, many: int) -> Callable[[int], Sample]:
        def sample(most: int) -> Sample:
            with opened(self._run.files) as database:
                # The text of the queries is this module's.
                rows = database.execute(
                    "WITH numbered AS (SELECT file, file_row_number, row_number() OVER (ORDER BY file, file_row_number)"  # noqa: S608
                    f" - 1 AS place {_OF_FUNCTION}) "
                    "SELECT ray_self_ns, ray_failed, resource_attributes, span_attributes FROM (SELECT * "
                    f"{_OF_FUNCTION}) JOIN numbered USING (file, file_row_number) WHERE place % ? = 0 ORDER BY place",
                    [name, name, step_of(many, most)],
                ).fetchall()
            own, failed = (np.array([row[column] for row in rows]) for column in (0, 1))
            spans = ((place, _decoded(row[2]), _decoded(row[3])) for place, row in enumerate(rows))
            return Sample(own, failed, spans)

        return sample

    def _errors_of(self, name: str) -> Callable[[], Mapping[str, int]]:
        def errors() -> Mapping[str, int]:
            with opened(self._run.files) as database:
                return dict(
                    database.execute(
                        f"SELECT coalesce(error_type, ''), count(*) {_OF_FUNCTION} AND ray_failed "
                        "GROUP BY 1 ORDER BY min(start_time_unix_nano)",
                        [name],
                    ).fetchall()
                )

        return errors


def _by_function(
    database: Any, functions: Sequence[str], columns: str, which: str, order: str = ""
) -> Iterator[tuple[Any, ...]]:
    """By function, NumPy columns of its spans, in order."""
    found = database.sql(
        f"SELECT number, {columns} FROM spans JOIN functions USING (ray_function) {which} "  # noqa: S608  as above
        f"ORDER BY number, {order}file, file_row_number"
    )
    # DuckDB 2 has given it another name.
    read = found.to_arrow_reader if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader
    pending: list[list[Any]] = []
    for batch in read(_ROWS):
        numbers, *values = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        begins = np.flatnonzero(np.diff(numbers)) + 1
        for each in zip(*(np.split(column, begins) for column in (numbers, *values)), strict=True):
            if pending and len(each[0]) and pending[0][0][0] != each[0][0]:
                yield _joined(functions, pending)
                pending = []
            if len(each[0]):
                pending.append([*each])
    if pending:
        yield _joined(functions, pending)


def _joined(functions: Sequence[str], pending: list[list[Any]]) -> tuple[Any, ...]:
    numbers, *columns = (np.concatenate(each) for each in zip(*pending, strict=True))
    return (functions[numbers[0]], *columns)


def _decoded(text: str | None) -> Mapping[str, Any]:
    found: Mapping[str, Any] = msgspec.json.decode(text) if text else {}
    return found
