"""The tables of a run in a store by Ray Data: each file of a store is counted on the node of a cluster that reads it.

If the files lack the columns of calls, whole traces go to nodes first, and these compute them.

Percentiles are exact, after two passes. The first counts rounded times; the second counts the times that round to one
where a percentile is. So nodes send counts, and no node holds the times of a function.
"""

from __future__ import annotations

import logging
import re
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, NamedTuple, overload
from zlib import crc32

import numpy as np

from ray_tracing_hooks._version import __version__

_SUMS = {
    "calls": "ray_is_call",
    "executions": "is_execution",
    "failed": "ray_failed",
    "self_ns": "ray_self_ns",
    "on_path_ns": "ray_path_ns",
    "is_assumed": "ray_self_is_assumed",
}
"""By member of a function in the document of a summary, the column."""

_TIMES = {"self": "ray_self_ns", "duration": "ray_run_ns", "queued": "ray_queue_ns", "submitting": "submitting"}

_READ = sorted({*_SUMS.values(), *_TIMES.values(), "ray_function", "ray_role", "duration_time_unix_nano"})
_MADE = ("is_execution", "submitting")

_Counts = dict[tuple[str, str], dict[int, int]]
"""By function and member of it: how often there is a time, rounded or not. A sum is the count of 0."""

_Wanted = dict[tuple[str, str], set[int]] | None
"""In the same way, rounded times."""

_ROWS = 1 << 17

_TOGETHER = 1 << 18
"""How many spans are analyzed at once, in whole traces: about 0.3 GB."""

_GROUP = "group"


class Spans(NamedTuple):
    """What is known of spans whose traces were analyzed."""

    spans: int
    unreadable: int
    """Rows that are no spans."""
    start: int
    end: int


def functions(
    files: Sequence[str], percentiles: Mapping[str, float], system: Any = None, now_ns: int | None = None
) -> tuple[list[dict[str, Any]], Spans | None]:
    """The functions of these files, by self time, as in the document of a summary; and what is known of their spans if
    these were analyzed: the files lack the columns of calls, or belong to no run. This process is connected to the
    cluster; ``system`` is the file system of the files, if they are not on the nodes, and ``now_ns`` is when the spans
    of a run were read first.

    Raises ImportError without Ray Data or pyarrow, and OSError if Ray Data fails.
    """
    import pyarrow as pa  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401, PLC0415  optional
    import ray.data  # noqa: PLC0415

    # The analysis takes long to import.
    from ray_tracing_hooks._insight.analysis.functions import percentile  # noqa: PLC0415

    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    # Otherwise nodes would import this package, or another version of it.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        # Not `read_parquet`: its threads import fsspec at the same time, which fails now and then (Ray 2.60).
        rows = ray.data.from_items([{"file": file} for file in files])
        has_all = now_ns is not None and {*_READ} - {*_MADE} <= {*_names(files[0], system)}
        made, spans = (None, None) if has_all else _analyzed(rows, system, now_ns)

        def count(wanted: _Wanted) -> Any:
            if made is None:
                return rows.map_batches(_of_files, fn_args=(system, wanted), batch_size=1)
            return made.map_batches(_counted, fn_args=(wanted,), batch_size=_ROWS, batch_format="pyarrow")

        sums = _gathered(count(None))
        rounded = {key: _Ordered(sums.pop(key)) for key in list(sums) if key[1] in _TIMES}
        for times in rounded.values():
            for share in percentiles.values():
                percentile(times, share)
        exact = _gathered(count({key: times.seen for key, times in rounded.items()}))
    except Exception as error:
        # Before it, Ray has the stack of the node, and behind it perhaps that a function failed, or advice on retries.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        whys = [line for line in lines if re.match(r"(?!.*UserCode)[\w.]+(Error|Invalid|Exception): ", line)]
        why = (whys or lines)[-1]
        raise OSError(0, f"Ray Data: {why}") from error
    finally:
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    found: dict[str, dict[str, Any]] = {}
    for function in {name for name, _ in sums}:
        found[function] = {"function": function, **{member: sums[function, member].get(0, 0) for member in _SUMS}}
        found[function] |= {"is_assumed": bool(found[function]["is_assumed"]), **dict.fromkeys(_TIMES)}
    for (function, member), times in rounded.items():
        others = {time: number for time, number in times.counts.items() if time not in times.seen}
        ordered = _Ordered(others | exact[function, member])
        found[function][member] = {f"{name}_ns": percentile(ordered, share) for name, share in percentiles.items()}
    return sorted(found.values(), key=lambda each: (-each["self_ns"], each["function"])), spans


class _Ordered(Sequence[int]):
    """Times in order, given how often there is each. ``seen`` are those that were looked at."""

    def __init__(self, counts: dict[int, int]) -> None:
        self.counts, self.seen = counts, set[int]()
        self._times = sorted(counts)
        self._ends = list(accumulate(counts[time] for time in self._times))

    def __len__(self) -> int:
        return self._ends[-1]

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: Any) -> Any:
        time = self._times[bisect_right(self._ends, place)]
        self.seen.add(time)
        return time


def _gathered(blocks: Any) -> _Counts:
    """The counts of all blocks together."""
    found: _Counts = defaultdict(lambda: defaultdict(int))
    for counts in blocks.iter_batches(batch_format="pyarrow", batch_size=None):
        for each in counts.to_pylist():
            found[each["function"], each["member"]][each["time"]] += each["number"]
    return found


@contextmanager
def _opened(name: str, system: Any) -> Iterator[Any]:
    """A file of Parquet."""
    import pyarrow.parquet as pq  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415

    with open(name, "rb") if system is None else system.open(name) as file:
        try:
            parquet = pq.ParquetFile(file)
        except ValueError as error:
            raise ValueError(f"{name} is damaged, or not Parquet: {error}") from None
        yield parquet


def _names(name: str, system: Any) -> list[str]:
    with _opened(name, system) as file:
        return list(file.schema_arrow.names)


def _of_files(batch: Any, system: Any, wanted: _Wanted) -> Iterator[Any]:
    """The counts of a file, for some of its rows after the other."""
    import pyarrow as pa  # noqa: PLC0415  on the nodes

    columns = [name for name in _READ if name not in _MADE]
    for name in batch["file"]:
        with _opened(name, system) as file:
            for rows in file.iter_batches(_ROWS, columns=columns):
                yield _counted(pa.Table.from_batches([rows]), wanted)


def _counted(rows: Any, wanted: _Wanted) -> Any:
    """The counts of some rows: their sums and rounded times; or of the ``wanted`` ones, the exact times."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415

    rows = rows.filter(pc.is_valid(rows["ray_function"]))
    functions, role = rows["ray_function"].cast(pa.string()), rows["ray_role"]
    submission = pc.fill_null(pc.equal(role, "submission"), False)
    submitting = pc.if_else(submission, rows["duration_time_unix_nano"], pa.scalar(None, pa.int64()))
    rows = rows.append_column("is_execution", pc.equal(role, "execution")).append_column("submitting", submitting)
    found = []

    def add(member: str, table: Any) -> None:
        sums = table.group_by(["function", "time"]).aggregate([("number", "sum")])
        members = pa.array([member] * len(sums), pa.string())
        found.append(
            sums.select(["function", "time"])
            .append_column("member", members)
            .append_column("number", pc.fill_null(sums["number_sum"], 0))
        )

    zeros, ones = (pa.array(np.full(len(rows), each, np.int64)) for each in (0, 1))
    for member, column in _SUMS.items() if wanted is None else ():
        add(member, pa.table({"function": functions, "time": zeros, "number": rows[column].cast(pa.int64())}))
    for member, column in _TIMES.items():
        table = pa.table({"function": functions, "time": rows[column], "number": ones})
        table = table.filter(pc.is_valid(table["time"]))
        times = table["time"].to_numpy().astype(np.float64)
        # The first eleven binary digits of a time, so rounded ones have its order.
        rounded = pa.array((times.view(np.int64) >> 42 << 42).view(np.float64).astype(np.int64))
        if wanted is None:
            table = table.set_column(1, "time", rounded)
        else:
            pairs = [(function, time) for (function, of), seen in wanted.items() if of == member for time in seen]
            names, whole = zip(*pairs, strict=True) if pairs else ((), ())
            kept = pa.table({"function": pa.array(names, pa.string()), "rounded": pa.array(whole, pa.int64())})
            table = table.append_column("rounded", rounded).join(kept, ["function", "rounded"], join_type="left semi")
        add(member, table)
    return pa.concat_tables(found)


# --- Files without the columns of calls ----------------------------------------------------------------------------


def _analyzed(files: Any, system: Any, now_ns: int | None) -> tuple[Any, Spans]:
    """The columns of calls as a dataset, which the nodes have made of whole traces; and what is known of the spans."""
    from ray_tracing_hooks._insight.ingest.parquet import NEEDED  # noqa: PLC0415  as above

    rows = sum(each["rows"] for each in files.map_batches(_sizes, fn_args=(system,), batch_size=1).take_all())
    if not rows:
        raise ValueError("the files have no rows")
    groups = -(-rows // _TOGETHER)
    # By default there are 200 tasks, most of them without any group.
    files.context.default_hash_shuffle_parallelism = groups
    spans = files.map_batches(_spans, fn_args=(system, NEEDED, groups), batch_size=1)
    made = spans.groupby(_GROUP).map_groups(_of_traces, fn_args=(__version__, now_ns), batch_format="pyarrow")
    made = made.materialize()
    known = made.map_batches(_about, batch_size=None, batch_format="pyarrow").take_all()
    times = [(each["start"], each["end"]) for each in known if each["spans"]]
    start, end = min((each for each, _ in times), default=0), max((each for _, each in times), default=0)
    return made, Spans(sum(each["spans"] for each in known), sum(each["unreadable"] for each in known), start, end)


def _sizes(batch: Any, system: Any) -> Any:
    found = []
    for name in batch["file"]:
        with _opened(name, system) as file:
            found.append(file.metadata.num_rows)
    return {"rows": found}


def _spans(batch: Any, system: Any, needed: Sequence[str], groups: int) -> Iterator[Any]:
    """The spans of a file, each with the number of its group: spans of a trace have the same."""
    import pyarrow as pa  # noqa: PLC0415

    for name in batch["file"]:
        with _opened(name, system) as file:
            names = file.schema_arrow.names
            if missing := [each for each in needed if each not in names]:
                raise ValueError(f"{name} is not a table of spans: it has no column {missing[0]}")
            columns = [*needed, *(each for each in ("state", "events_json") if each in names)]
            for each in file.iter_batches(_ROWS, columns=columns):
                rows = pa.Table.from_batches([each])
                ids = rows["trace_id"].cast(pa.string()).combine_chunks().fill_null("").dictionary_encode()
                of_id = [crc32(str(trace).lower().encode()) % groups for trace in ids.dictionary.to_pylist()]
                yield rows.append_column(_GROUP, pa.array(of_id, pa.int32()).take(ids.indices))


def _of_traces(spans: Any, version: str, now_ns: int | None) -> Any:
    """The columns of the calls of whole traces, and a row with what is known of all these spans."""
    try:
        import ray_tracing_hooks  # noqa: PLC0415
        from ray_tracing_hooks._insight.store.computed import computed  # noqa: PLC0415
    except ImportError as error:
        raise ImportError(f"each node needs ray-tracing-hooks {version}, and one has none: {error}") from None
    if ray_tracing_hooks.__version__ != version:
        raise ImportError(f"each node needs ray-tracing-hooks {version}, and one has {ray_tracing_hooks.__version__}")
    return computed(spans, now_ns)


def _about(rows: Any) -> Any:
    """The rows with what is known of all spans."""
    import pyarrow.compute as pc  # noqa: PLC0415

    return rows.filter(pc.is_valid(rows["spans"])).select(list(Spans._fields))
