"""The runs in a folder of spans: one for each driver, with all its work.

A folder collects the spans of every traced program. Traces with spans of the same job of the same Ray session belong
to one run; a driver without a root span has many traces.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.table import Table


@dataclass
class Run:
    """One run."""

    session: str
    """The session of the cluster, empty if not recorded."""
    job: str
    """Ray's id of the job, or the trace id if there is no job."""
    rows: list[int] = field(default_factory=list)
    """By start."""


def runs(table: Table) -> list[Run]:
    """All runs, the newest first."""
    sessions = [str(resource.get(names.RESOURCE_SESSION_NAME) or "") for resource in table.resources]
    jobs = [str(site.get(names.RAY_JOB_ID) or "") for site in table.sites]
    of_trace: dict[int, tuple[str, str]] = {}
    for trace, site, resource in zip(table.trace, table.site, table.resource, strict=True):
        if jobs[site] and trace not in of_trace:
            of_trace[trace] = sessions[resource], jobs[site]
    found: dict[tuple[str, str], Run] = {}
    for row, trace in enumerate(table.trace):
        key = of_trace.get(trace) or ("", table.traces[trace])
        if key not in found:
            found[key] = Run(*key)
        found[key].rows.append(row)
    return sorted(found.values(), key=lambda run: -table.start[run.rows[0]])


def part_of(table: Table, run: Run) -> Table:
    """The table of a run."""
    return table if len(run.rows) == len(table) else table.part(run.rows)
