"""The generations of LLM engines in a table: what their front ends have recorded of each request."""

from __future__ import annotations

from typing import Any

import numpy as np

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.merge import as_numpy
from ray_tracing_hooks._insight.model.span import INTERNAL, nanoseconds, number
from ray_tracing_hooks._insight.model.table import Table

_MOST_READ = 100_000
"""Of more generations, the figures of the first ones are read from the files: each takes tens of microseconds."""

_TIMES = {
    "to_queue": names.RAY_LLM_TIME_TO_QUEUE,
    "queue": names.GEN_AI_QUEUE_TIME,
    "prefill": names.GEN_AI_PREFILL_TIME,
    "decode": names.GEN_AI_DECODE_TIME,
    "first": names.GEN_AI_FIRST_CHUNK,
}
_TOKENS = {
    "input": (names.GEN_AI_INPUT_TOKENS, names.RAY_LLM_INPUT_TOKENS, names.RAY_LLM_PREFILL_INPUT_TOKENS),
    "output": (names.GEN_AI_OUTPUT_TOKENS, names.RAY_LLM_OUTPUT_TOKENS, names.RAY_LLM_PREFILL_OUTPUT_TOKENS),
    "cached": (names.GEN_AI_CACHED_TOKENS, names.RAY_LLM_CACHED_TOKENS, names.RAY_LLM_PREFILL_CACHED_TOKENS),
}
UNKNOWN = -1
PHASES = "queue", "prefill", "decode"


class Generations:
    """Generations, by start: NumPy columns with an item for each.

    ``row``                                      in the table.
    ``to_queue, queue, prefill, decode, first``  nanoseconds, ``first`` until the first token; :data:`UNKNOWN` if the
                                                 engine did not tell, or this one was not read.
    ``input, output, cached``                    tokens.
    ``choices``                                  how many completions of the prompt.
    ``is_aborted, is_streamed``                  whether its caller stopped it, and whether it gets parts of the output.
    ``may_be_streamed``                          the same, or it is unknown.
    ``is_leg``                                   whether it is the prefill for another engine.
    """

    to_queue: Any
    queue: Any
    prefill: Any
    decode: Any
    first: Any
    input: Any
    output: Any
    cached: Any

    def __init__(self, table: Table, rows: Any) -> None:
        self.table, self.row, size = table, rows, len(rows)
        sites = [table.sites[each] for each in as_numpy(table.site)[rows].tolist()]
        self.model = [str(site.get(names.GEN_AI_REQUEST_MODEL) or "") for site in sites]
        self.is_leg = np.array([names.GEN_AI_OPERATION not in site for site in sites], bool)
        self.is_streamed = np.array([site.get(names.GEN_AI_STREAM) is True for site in sites], bool)
        self.may_be_streamed = np.array([site.get(names.GEN_AI_STREAM) is not False for site in sites], bool)
        self.choices, self.is_aborted = np.ones(size, np.int64), np.zeros(size, bool)
        for column in _TIMES:
            setattr(self, column, np.full(size, UNKNOWN))
        for column in _TOKENS:
            setattr(self, column, np.zeros(size, np.int64))
        self.is_read = np.arange(size) < _MOST_READ
        place = dict(zip(rows[:_MOST_READ].tolist(), range(size), strict=False))
        for row in table.as_recorded(place):
            self._read(place[row], table.span(row).attributes)
        start = as_numpy(table.start)[rows]
        self.took = as_numpy(table.ends)[rows] - start
        for column in _TIMES:
            np.minimum(getattr(self, column), self.took, out=getattr(self, column))
        self.edges = self._edges(start)
        """For each its start, when it was in the engine's queue, left it, had its first and its last token, and its
        end, as far as that is known: a part that is not has no length, and what is left is after all others."""

    def _read(self, place: int, attributes: dict[str, Any]) -> None:
        for column, key in _TIMES.items():
            if (seconds := attributes.get(key)) is not None:
                getattr(self, column)[place] = max(0, nanoseconds(seconds))
        for column, keys in _TOKENS.items():
            getattr(self, column)[place] = next((found for key in keys if (found := number(attributes.get(key)))), 0)
        self.choices[place] = number(attributes.get(names.GEN_AI_CHOICES)) or 1
        reasons = attributes.get(names.GEN_AI_FINISH_REASONS)
        self.is_aborted[place] = isinstance(reasons, (list, tuple)) and "abort" in reasons

    def phases(self) -> dict[int, list[tuple[str, int, int]]]:
        """By row the phases of the generations without spans below them: the name of each, its start and its end."""
        is_leaf = ~np.isin(self.row, as_numpy(self.table.parent))
        drawn = np.nonzero(is_leaf & self.is_read & ((self.to_queue >= 0) | self.is_complete))[0].tolist()
        found = {}
        for place in drawn:
            row, edges = int(self.row[place]), self.edges[1:5, place].tolist()
            known = zip(PHASES, edges, edges[1:], strict=False)
            phases = [each for each in known if each[2] > each[1] and getattr(self, each[0])[place] >= 0]
            if phases:
                found[row] = phases
        return found

    @property
    def is_complete(self) -> Any:
        """Whether the engine has told all phases: what is left of it is then the time of its front end."""
        return (self.queue >= 0) & (self.prefill >= 0) & (self.decode >= 0)

    def _edges(self, start: Any) -> Any:
        known = [np.maximum(each, 0) for each in (self.queue, self.prefill, self.decode)]
        before = np.where(self.first >= 0, self.first, self.took) - known[0] - known[1]
        guessed = np.where(self.is_complete & (self.first >= 0), before, 0)
        to_queue = np.maximum(np.where(self.to_queue >= 0, self.to_queue, guessed), 0)
        lengths = np.minimum(np.array([to_queue, *known]), self.took)
        edges = np.cumsum(np.concatenate([start[None, :], lengths, np.zeros((1, len(start)), np.int64)]), axis=0)
        edges[-1] = start + self.took
        return np.minimum(edges, edges[-1])


def generations(table: Table) -> Generations | None:
    """The generations in a table; None if there are none, which is quickly seen."""
    if not any(names.GEN_AI_PROVIDER in site for site in table.sites):
        return None
    found = table.is_at(lambda site: names.GEN_AI_PROVIDER in site) & table.is_ours()
    found &= as_numpy(table.kind) == INTERNAL
    rows = np.nonzero(found)[0]
    return Generations(table, rows) if len(rows) else None
