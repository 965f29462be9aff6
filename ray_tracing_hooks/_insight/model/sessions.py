"""The session of Ray, and so the cluster, that each span is of. Clusters give their jobs and tasks the same ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.grouped import by_first
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.table import Table


def sessions(table: Table) -> list[str]:
    """The sessions of the clusters that these spans name, by the first span."""
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
