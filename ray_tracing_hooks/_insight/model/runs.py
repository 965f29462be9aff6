"""The runs in a folder of spans: one for each driver, with all its work.

A folder collects the spans of every traced program. Traces with spans of the same job of the same Ray session belong
to one run; a driver without a root span has many traces.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.table import Table


@dataclass
class Run:
    """One run."""

    session: str
    """The session of the cluster, empty if not recorded."""
    job: str
    """Ray's id of the job, or the trace id if there is no job."""
    rows: array[int]
    """By start."""


def runs(table: Table) -> list[Run]:
    """All runs, the newest first."""
    session_of = [str(resource.get(names.RESOURCE_SESSION_NAME) or "") for resource in table.resources]
    jobs = [str(site.get(names.RAY_JOB_ID) or "") for site in table.sites]
    trace, site = as_numpy(table.trace), as_numpy(table.site)
    with_job = np.nonzero(np.array([bool(job) for job in jobs], bool)[site])[0]
    keys = [("", each) for each in table.traces]
    for row in with_job[np.unique(trace[with_job], return_index=True)[1]].tolist():
        keys[table.trace[row]] = session_of[table.resource[row]], jobs[table.site[row]]
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    of_row = np.array([number[key] for key in keys], np.int64)[trace]
    (rows,) = split(of_row, len(number), np.arange(len(table)))
    found = [Run(*key, as_array(own, "I")) for key, own in zip(number, rows, strict=True) if len(own)]
    return sorted(found, key=lambda run: (-table.start[run.rows[0]], run.rows[0]))


def sessions(table: Table) -> list[str]:
    """The sessions of the clusters that these spans name, by the first span."""
    found = (table.resources[index].get(names.RESOURCE_SESSION_NAME) for index in by_first(table.resource))
    return list(dict.fromkeys(str(each) for each in found if each))


def part_of(table: Table, run: Run) -> Table:
    """The table of a run."""
    return table if len(run.rows) == len(table) else table.part(run.rows)
