"""The files of a run in a store as a table of DuckDB, and the tables of a summary that are sums and percentiles of it.

DuckDB computes them out of core, so a run may be larger than memory.
"""

from __future__ import annotations

import atexit
import glob
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

SUMS = {
    "calls": "count(*) FILTER (ray_is_call)",
    "executions": "count(*) FILTER (ray_role = 'execution')",
    "failed": "count(*) FILTER (ray_failed)",
    "self_ns": "coalesce(sum(ray_self_ns), 0)::BIGINT",
    "on_path_ns": "coalesce(sum(ray_path_ns), 0)::BIGINT",
    "is_assumed": "coalesce(bool_or(ray_self_is_assumed), false)",
}
"""By member of a function in the document of a summary."""

_TIMES = {
    "self": "ray_self_ns",
    "duration": "ray_run_ns",
    "queued": "ray_queue_ns",
    "submitting": "CASE WHEN ray_role = 'submission' THEN duration_time_unix_nano END",
}

_MEMORY = "4GB"
"""DuckDB writes to disk what is more, but for the values of a percentile, 8 bytes each. One kind of time is computed
after the other, so that only its values are there."""


def quoted(path: str) -> str:
    """A path as a text of SQL."""
    return "'" + path.replace("'", "''") + "'"


@contextmanager
def opened(files: Sequence[str]) -> Iterator[Any]:
    """A connection to DuckDB with a view ``spans``: these files, with their order in ``file`` and ``file_row_number``.

    Raises ImportError without DuckDB, OSError if the files cannot be read, and KeyboardInterrupt for Ctrl-C.
    """
    duckdb = import_module("duckdb")
    with _instance().cursor() as database:
        options = "file_row_number = true, hive_partitioning = false"
        rows = (
            f"SELECT {number} AS file, * FROM read_parquet({quoted(glob.escape(each))}, {options})"  # noqa: S608
            for number, each in enumerate(files)
        )
        try:
            database.execute(f"CREATE TEMP VIEW spans AS {' UNION ALL '.join(rows)}")
            yield database
        except duckdb.Error as error:
            said, _, _ = str(error).partition("LINE 1:")  # the query
            raise OSError(0, f"{os.path.dirname(files[0])}: {' '.join(said.split())}") from None
        except RuntimeError as error:
            if str(error) == "Query interrupted":
                raise KeyboardInterrupt from None
            raise


@cache
def _instance() -> Any:
    """The DuckDB of this process: making one takes as long as many a query."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    database = import_module("duckdb").connect()
    for name, value in (
        ("memory_limit", _MEMORY),
        ("temp_directory", folder.name),
        ("preserve_insertion_order", "false"),
        # What it needs comes with it.
        ("autoinstall_known_extensions", "false"),
    ):
        database.execute(f"SET {name} = ?", [value])
    return database


def functions(files: Sequence[str], percentiles: Mapping[str, float]) -> list[dict[str, Any]]:
    """The functions of a run, by self time, as in the document of a summary. ``files`` are those of its store.

    Raises ImportError without DuckDB, and OSError if the files cannot be read.
    """
    with opened(files) as database:
        return _functions(database, percentiles)


def _functions(database: Any, percentiles: Mapping[str, float]) -> list[dict[str, Any]]:
    sums = ", ".join(SUMS.values())
    # The text of the queries is this module's.
    rows = database.execute(
        f"SELECT ray_function, {sums} FROM spans WHERE ray_function IS NOT NULL GROUP BY ray_function"  # noqa: S608
    ).fetchall()
    found = {name: {"function": name, **dict(zip(SUMS, values, strict=True))} for name, *values in rows}
    for time, of in _TIMES.items():
        for each in found.values():
            each[time] = None
        # Where exactly a share of the values is not exceeded, a percentile is the mean of two: from either side.
        low = ", ".join(str(share) for share in percentiles.values())
        high = ", ".join(f"{1 - share:.3g}" for share in percentiles.values())
        rows = database.execute(
            f"SELECT ray_function, quantile_disc(ns, [{low}]), quantile_disc(-ns, [{high}]) FROM "  # noqa: S608
            f"(SELECT ray_function, {of} AS ns FROM spans WHERE ray_function IS NOT NULL) "
            "WHERE ns IS NOT NULL GROUP BY ray_function"
        ).fetchall()
        for name, lows, highs in rows:
            pairs = zip(percentiles, lows, highs, strict=True)
            found[name][time] = {f"{each}_ns": (low_value - high_value) // 2 for each, low_value, high_value in pairs}
    return sorted(found.values(), key=lambda each: (-each["self_ns"], each["function"]))
