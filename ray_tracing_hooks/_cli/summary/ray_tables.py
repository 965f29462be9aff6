"""The tables of a run in a store by Ray Data: each file of a store is counted on the node of a cluster that reads it.

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
from typing import Any, overload

import numpy as np

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


def functions(files: Sequence[str], percentiles: Mapping[str, float], system: Any = None) -> list[dict[str, Any]]:
    """The functions of these files of a store, by self time, as in the document of a summary. This process is connected
    to the cluster; ``system`` is the file system of the files, if they are not on the nodes.

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

        def count(wanted: _Wanted) -> Any:
            return rows.map_batches(_of_files, fn_args=(system, wanted), batch_size=1)

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
    return sorted(found.values(), key=lambda each: (-each["self_ns"], each["function"]))


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
