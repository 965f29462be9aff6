"""The runs in a folder of spans: one for each driver, with all its work; and the session of Ray that each span is of.

A folder collects the spans of every traced program. Traces with spans of the same job of the same Ray session belong
to one run; a driver without a root span has many traces. A trace of the program's own spans alone, such as that of a
loop or a thread of an actor, names no job: it belongs to that of its process. Spans of Ray's own tracing name no
session: there, traces with spans of the same job belong together if they have nodes in common.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import by_first, split
from ray_tracing_hooks._insight.model.merge import as_array, as_numpy
from ray_tracing_hooks._insight.model.table import Table


@dataclass
class Run:
    session: str
    """The session of the cluster, empty if not recorded."""
    job: str
    """Ray's id of the job, or the trace id if there is no job."""
    rows: array[int]
    """By start."""


def runs(table: Table) -> list[Run]:
    """All runs, the newest first."""
    jobs = [str(site.get(names.RAY_JOB_ID) or "") for site in table.sites]
    session_of = [str(resource.get(names.RESOURCE_SESSION_NAME) or "") for resource in table.resources]
    job_of_trace = _first(table, table.site, jobs)
    session_of_trace = _first(table, table.resource, session_of)
    if nameless := session_of_trace.keys() - job_of_trace.keys():
        job_of_trace |= _by_process(table, nameless, jobs)
    without = [trace for trace in job_of_trace if trace not in session_of_trace]
    clusters = _clusters(table, without) if without else {}
    keys = [("", each, "") for each in table.traces]
    for trace, job in job_of_trace.items():
        keys[trace] = session_of_trace.get(trace, ""), job, clusters.get(trace, "")
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    of_row = np.array([number[key] for key in keys], np.int64)[as_numpy(table.trace)]
    (rows,) = split(of_row, len(number), np.arange(len(table)))
    found = [
        Run(session, job, as_array(own, "I")) for (session, job, _), own in zip(number, rows, strict=True) if len(own)
    ]
    return sorted(found, key=lambda run: (-table.start[run.rows[0]], run.rows[0]))


def _first(table: Table, column: array[int], values: Sequence[str]) -> dict[int, str]:
    """The first value of each trace that is not empty. ``column`` has for each row the index of its value."""
    which, trace = as_numpy(column), as_numpy(table.trace)
    rows = np.nonzero(np.array([bool(value) for value in values], bool)[which])[0]
    rows = rows[np.unique(trace[rows], return_index=True)[1]]
    return {table.trace[row]: values[column[row]] for row in rows.tolist()}


def _by_process(table: Table, traces: Collection[int], jobs: Sequence[str]) -> dict[int, str]:
    """The job of the process in which each of these traces began, as far as its other spans name exactly one."""
    site, resource = as_numpy(table.site).astype(np.int64), as_numpy(table.resource).astype(np.int64)
    jobs_of: dict[int, set[str]] = {}
    for pair in np.unique(resource * len(jobs) + site).tolist():
        process, its_site = divmod(pair, len(jobs))
        if jobs[its_site]:
            jobs_of.setdefault(process, set()).add(jobs[its_site])
    found = {}
    begun, first_rows = np.unique(as_numpy(table.trace), return_index=True)
    for trace, row in zip(begun.tolist(), first_rows.tolist(), strict=True):
        if trace in traces and len(named := jobs_of.get(table.resource[row], set())) == 1:
            found[trace] = next(iter(named))
    return found


def _clusters(table: Table, traces: Sequence[int]) -> dict[int, str]:
    """For traces that name no session, a node of their cluster: all that have nodes in common have the same one.

    Ray numbers the jobs of every cluster from 1, but no two clusters have a node in common.
    """
    nodes = [str(site.get(names.RAY_NODE_ID) or "") for site in table.sites]
    trace, site = as_numpy(table.trace), as_numpy(table.site).astype(np.int64)
    rows = np.isin(trace, traces) & np.array([bool(node) for node in nodes], bool)[site]
    same: dict[str, str] = {}

    def first(node: str) -> str:
        while (above := same.setdefault(node, node)) != node:
            same[node] = same[above]
            node = above
        return node

    node_of: dict[int, str] = {}
    for pair in np.unique(trace[rows] * np.int64(len(nodes)) + site[rows]).tolist():
        its_trace, its_site = divmod(pair, len(nodes))
        node = first(nodes[its_site])
        same[node] = first(node_of.setdefault(its_trace, node))
    return {its_trace: first(node) for its_trace, node in node_of.items()}


def part_of(table: Table, run: Run) -> Table:
    return table if len(run.rows) == len(table) else table.part(run.rows)


def sessions(table: Table) -> list[str]:
    """The sessions of the clusters that these spans name, by the first span: clusters give jobs the same ids."""
    found = (table.resources[index].get(names.RESOURCE_SESSION_NAME) for index in by_first(table.resource))
    return list(dict.fromkeys(str(each) for each in found if each))


def by_row(table: Table) -> tuple[list[str], Any]:
    """The names of sessions, an empty one first, and as a NumPy column for each row the number of its own.

    A span that names no session is of the one that others of its trace name, if there are such.
    """
    number = {"": 0}
    names_of = (str(each.get(names.RESOURCE_SESSION_NAME) or "") for each in table.resources)
    of_resource = np.array([number.setdefault(name, len(number)) for name in names_of], np.int64)
    of_row = of_resource[as_numpy(table.resource)]
    named = np.nonzero(of_row)[0]
    if 0 < len(named) < len(of_row):
        trace = as_numpy(table.trace)
        found, first = np.unique(trace[named], return_index=True)
        of_trace = np.zeros(len(table.traces), np.int64)
        of_trace[found] = of_row[named[first]]
        of_row = np.where(of_row, of_row, of_trace[trace])
    return list(number), of_row


_LETTERS = str.maketrans("0123456789abcdef", "klmnopqrstuvwxyz")
"""An id has no digits: as a partition of a table, it must not look like a number."""


def run_id(table: Table, run: Run) -> str:
    """The id of a run: the same whenever it is written."""
    # Without a session, a job has the same id in every cluster.
    of = [run.session, run.job, "" if run.session else table.traces[table.trace[0]]]
    return hashlib.sha256("\0".join(of).encode()).hexdigest()[:10].translate(_LETTERS)
