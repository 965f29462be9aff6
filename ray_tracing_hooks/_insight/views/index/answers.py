"""Answers requests from the page of a large run: for tiles, figures, spans, and the spans that match a filter.

An answer is a block of columns, in the same format as in the page itself, with a JSON header. Times are nanoseconds
from the start of the run, and rows identify spans. Every answer has a size limit, whatever the request.
"""

from __future__ import annotations

import json
import os
import re
import struct
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import chain, compress, count, islice
from typing import Any, NamedTuple

from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.model.span import PRODUCER
from ray_tracing_hooks._insight.model.table import RUNNING
from ray_tracing_hooks._insight.views.index.bars import BUCKETS_BITS, Bars, tile
from ray_tracing_hooks._insight.views.index.figures import figures, spent_in, strip
from ray_tracing_hooks._insight.views.index.filters import Filters, UnsearchableError, WrongError
from ray_tracing_hooks._insight.views.index.mapped import open_table, opened
from ray_tracing_hooks._insight.views.page.details import described
from ray_tracing_hooks._insight.views.page.flags import FAILED, KIND, STATE, STATE_SHIFT
from ray_tracing_hooks._insight.views.page.pack import packed, plain
from ray_tracing_hooks._insight.views.redaction import Redaction

MOST_LISTED = 1_000
"""The most spans in a table."""

_MOST_LOOKED_AT = 400_000
"""With more spans, figures of a range or filter are estimated from a sample, since each move requests them."""

_MOST_OPEN = 500
_MOST_ABOVE = 100
_MOST_CHILDREN = 500
_MOST_EDGES = 100
_SLOWEST = 30
_MOST_SUBS = 64
_MOST_QUERY = 2_000
_KEPT = 2
"""The number of filters that are cached: each takes up to 33 bytes per span."""

_LENGTH = struct.Struct("<I")

_SPAN = ("row", "start", "took", "flags", "name", "function", "flame", "resource", "lane", "depth", "queued")


class UnknownError(LookupError):
    """The requested kind of answer does not exist."""


class _Kept(NamedTuple):
    """The spans that match a filter."""

    mask: bytes | None
    bars: Bars
    many: int


class Answers:
    """Answers from one index, which does not change. Several threads may use it."""

    def __init__(self, folder: str) -> None:
        """``folder``: an index made by :func:`~ray_tracing_hooks._insight.views.index.build.build`."""
        self._table = open_table(folder)
        self._columns = opened(folder)
        with open(os.path.join(folder, "meta.json"), encoding="utf-8") as file:
            self._meta: dict[str, Any] = json.load(file)
        self._filters = Filters(self._table, self._columns, self._meta)
        self._all = _Kept(None, Bars.of(self._columns), len(self._table))
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._questions: dict[str, Callable[[Mapping[str, str]], bytes]] = {
            "tile": self._tile,
            "filter": self._filter,
            "figures": self._figures,
            "list": self._list,
            "stack": self._stack,
            "span": self._span,
            "rows": self._rows,
            "group": self._group,
        }

    def answer(self, what: str, asked: Mapping[str, str]) -> bytes:
        """The answer to one request. Raises WrongError or UnknownError."""
        found = self._questions.get(what)
        if found is None:
            raise UnknownError(what)
        return found(asked)

    # --- requests -------------------------------------------------------------------------------------------------

    def _tile(self, asked: Mapping[str, str]) -> bytes:
        """Bars of a time range in some rows of the timeline: ``level``, ``index``, ``first``, ``last``, ``q``."""
        bars = self._filtered(asked).bars
        level, index = _number(asked, "level", BUCKETS_BITS, 62), _number(asked, "index", 0, 1 << 53)
        rows = len(bars.begins) - 1
        first = _number(asked, "first", 0, max(0, rows - 1))
        last = min(rows, first + _MOST_SUBS, _number(asked, "last", first, 1 << 31))
        if index << level > self._extent:
            raise WrongError("index")
        found = tile(bars, level, index, range(first, last))
        return _block(
            {},
            {
                **self.spans(found.row),
                "sub": [sub - first for sub in found.sub],
                "begin": found.begin,
                "length": [until - at for at, until in zip(found.begin, found.until, strict=True)],
                "count": found.many,
                "ran": found.ran,
                "failures": found.failed,
            },
        )

    def _filter(self, asked: Mapping[str, str]) -> bytes:
        """How many spans match ``q``, where they are on the timeline, and how many ran at the same time."""
        try:
            kept = self._filtered(asked)
        except UnsearchableError as error:
            return _block({"problem": str(error)}, {})
        rows, every = self._sampled(kept, 0, len(self._table))
        running, failed = strip(
            self._columns, self._table.parent, rows, self._extent, has_calls=bool(self._meta["executions"])
        )
        running = [each * every for each in running]
        return _block({"kept": kept.many, "running": running, "failed": list(failed)}, {"begins": kept.bars.begins})

    def _figures(self, asked: Mapping[str, str]) -> bytes:
        """Figures for a range and a filter: ``from``, ``to``, ``q``."""
        kept, (first, last) = self._filtered(asked), self._range(asked)
        before, begin, end = self._overlapping(kept, first, last)
        rows, every = self._sampled(kept, begin, end)
        meta = self._meta
        sizes = len(meta["flame"]["parent"]), len(meta["places"]), len(meta["graph"]["functions"])
        chosen = (*before, *rows)
        scaled = figures(self._columns, chosen, first, last, meta["lanes"], sizes)._asdict()
        scaled["own"], scaled["share"] = spent_in(
            self._columns, self._table.parent, chosen, first, last, meta["flame"]["wait"]
        )
        for name in ("spans", "summed", "own", "calls", "errors"):
            scaled[name] = [each * every for each in scaled[name]]
        return _block({"every": every}, scaled)

    def _list(self, asked: Mapping[str, str]) -> bytes:
        """Spans in a range that match a filter, as a table: sorted ``by`` a column, ``ascending``, up to a limit."""
        kept, (first, last) = self._filtered(asked), self._range(asked)
        by, ascending = asked.get("by", ""), asked.get("ascending") == "1"
        before, begin, end = self._overlapping(kept, first, last)
        within = range(begin, end) if kept.mask is None else compress(range(begin, end), kept.mask[begin:end])
        many = len(before) + (end - begin if kept.mask is None else kept.mask.count(1, begin, end))
        best = nsmallest if ascending else nlargest
        if by == "start":
            rows = list(islice((*before, *islice(within, MOST_LISTED)), MOST_LISTED)) if ascending else None
            if rows is None:
                late = reversed(range(begin, end))
                passing = late if kept.mask is None else (row for row in late if kept.mask[row])
                rows = [*islice(passing, MOST_LISTED), *reversed(before)][:MOST_LISTED]
        elif by in ("took", "queued"):
            rows = best(MOST_LISTED, chain(before, within), key=self._columns[by].__getitem__)
        elif by == "name":
            order = sorted(range(len(self._meta["names"])), key=self._meta["names"].__getitem__)
            rank = {name: place for place, name in enumerate(order)}
            of = self._columns["name"]
            rows = best(MOST_LISTED, chain(before, within), key=lambda row: rank[of[row]])
        else:
            raise WrongError("by")
        return _block({"count": many}, self.spans(rows))

    def _stack(self, asked: Mapping[str, str]) -> bytes:
        """The spans that are open at a moment, and their ancestors: ``at``."""
        kept, at = self._filtered(asked), self._time(asked, "at", 0)
        bars = self._all.bars
        open_now = set(bars.open_at(at))
        if at == self._extent:
            open_now.update(self._running())
        mask = kept.mask
        passing = sorted(row for row in open_now if mask is None or mask[row])
        shown = passing[:_MOST_OPEN]
        wanted = dict.fromkeys(shown)
        for row in shown:
            wanted.update(dict.fromkeys(self._above(row)))
        edges = [edge for row in shown for edge in self.edges(row)][: _MOST_EDGES * 10]
        wanted.update(dict.fromkeys(row for edge in edges for row in edge[:2]))
        head = {"open": shown, "count": len(passing), "hidden": len(open_now) - len(passing)}
        return _block({**head, "edges": edges}, self.spans(wanted))

    def _span(self, asked: Mapping[str, str]) -> bytes:
        """One complete span, and the spans related to it: ``row``."""
        table, columns = self._table, self._columns
        row = _number(asked, "row", 0, max(0, len(table) - 1))
        wanted: dict[int, None] = {row: None}
        wanted.update(dict.fromkeys(self._above(row)))
        children = list(table.children(row))
        many = len(children)
        if many > _MOST_CHILDREN:
            children = sorted(nlargest(_MOST_CHILDREN, children, key=columns["took"].__getitem__))
        wanted.update(dict.fromkeys(children))
        below: dict[int, list[int]] = {row: children}
        for child in children:
            if columns["flags"][child] & KIND == PRODUCER:
                below[child] = list(islice(table.children(child), 20))
                wanted.update(dict.fromkeys(below[child]))
        around = [row, *([columns["submission"][row] - 1] if columns["submission"][row] else [])]
        edges = [edge for each in around for edge in self.edges(each)]
        wanted.update(dict.fromkeys(other for edge in edges for other in edge[:2]))
        for each in list(wanted):
            if submission := columns["submission"][each]:
                wanted[submission - 1] = None
        bars = self._filtered(asked).bars
        lane, depth = columns["lane"][row], columns["depth"][row]
        subs = self._meta["deepest"]
        beside = (-1, -1)
        if depth < subs[lane]:
            beside = bars.beside(sum(subs[:lane]) + depth, columns["start"][row], row)
        wanted.update(dict.fromkeys(each for each in beside if each >= 0))
        with self._reading:
            shapes: dict[tuple[str, ...], int] = {}
            span = described(table, row, shapes, lambda _trace, _span: -1, Redaction())
        head = {
            "shapes": list(shapes),
            "span": span,
            "trace": table.trace_id_of(row),
            "below": list(below.items()),
            "children": many,
            "edges": edges,
            "beside": beside,
        }
        return _block(head, self.spans(wanted))

    def _rows(self, asked: Mapping[str, str]) -> bytes:
        """The spans of ``rows``, which are separated by dashes."""
        text = asked.get("rows", "")
        if not re.fullmatch(r"\d{1,12}(-\d{1,12}){0,199}", text):
            raise WrongError("rows")
        rows = [row for row in map(int, text.split("-")) if row < len(self._table)]
        return _block({}, self.spans(rows))

    def _group(self, asked: Mapping[str, str]) -> bytes:
        """The spans of a ``function``, a ``flame`` stack and the stacks below it, a ``place`` or a ``name``."""
        columns, meta = self._columns, self._meta
        limits = {
            "function": len(meta["graph"]["functions"]),
            "flame": len(meta["flame"]["parent"]),
            "place": len(meta["places"]),
            "name": len(meta["names"]),
        }
        kind = next((name for name in limits if name in asked), None)
        if kind is None:
            raise WrongError("nothing to select")
        chosen = _number(asked, kind, 0, max(0, limits[kind] - 1))
        if kind == "function":
            fits, of = [each == chosen + 1 for each in range(limits[kind] + 1)], columns["function"]
        elif kind == "flame":
            fits, of = [each == chosen for each in range(limits[kind])], columns["flame"]
            for each, above in enumerate(meta["flame"]["parent"]):
                if above >= 0 and fits[above]:
                    fits[each] = True
        elif kind == "place":
            fits, of = [place == chosen for place in meta["lanes"]], columns["lane"]
        else:
            fits, of = [each == chosen for each in range(limits[kind])], columns["name"]
        rows = array("I", compress(count(), map(fits.__getitem__, of)))
        took = columns["took"]
        slowest = nlargest(_SLOWEST, rows, key=took.__getitem__)
        step = len(rows) // _MOST_LOOKED_AT + 1
        durations = sorted(map(took.__getitem__, rows[::step]))
        lanes = set(map(columns["lane"].__getitem__, rows))
        head = {
            "stacks": sorted(set(map(columns["flame"].__getitem__, rows))),
            "places": sorted({meta["lanes"][lane] for lane in lanes}),
            "functions": sorted({each - 1 for each in set(map(columns["function"].__getitem__, rows)) if each}),
            "count": len(rows),
            "failed": sum(columns["flags"][row] & FAILED and 1 for row in rows),
            "p50": percentile(durations, 0.5),
            "p95": percentile(durations, 0.95),
            "max": took[slowest[0]] if slowest else 0,
            "slowest": slowest,
            "first": rows[0] if rows else -1,
        }
        return _block(head, self.spans([*slowest, *rows[:1]]))

    # --- parts of answers -----------------------------------------------------------------------------------------

    @property
    def _extent(self) -> int:
        extent: int = self._meta["extent"]
        return extent

    def _filtered(self, asked: Mapping[str, str]) -> _Kept:
        query = asked.get("q", "").strip()
        if len(query) > _MOST_QUERY:
            raise WrongError("q")
        if not query:
            return self._all
        with self._lock:
            known = self._kept.get(query)
            if known is None:
                mask = self._filters.keep(query)
                known = self._all if mask is None else _Kept(mask, self._all.bars.only(mask), mask.count(1))
                self._kept[query] = known
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(query)
            return known

    def _range(self, asked: Mapping[str, str]) -> tuple[int, int]:
        first = self._time(asked, "from", 0)
        return first, self._time(asked, "to", first)

    def _time(self, asked: Mapping[str, str], name: str, least: int) -> int:
        # Numbers in a browser have 53 bits, so the end of a longer run may arrive slightly too large.
        return min(self._extent, _number(asked, name, least, self._extent + (self._extent >> 52)))

    def _overlapping(self, kept: _Kept, first: int, last: int) -> tuple[list[int], int, int]:
        """The rows that start before a range and extend into it, and the range of rows that start inside it."""
        start = self._columns["start"]
        begin, end = bisect_left(start, first), bisect_right(start, last)
        before = sorted(row for row in kept.bars.open_at(first) if row < begin)
        return before, begin, end

    def _sampled(self, kept: _Kept, begin: int, end: int) -> tuple[Iterable[int], int]:
        """The matching rows between two rows, or an evenly spaced sample of them."""
        rows: Iterable[int] = range(begin, end)
        if kept.mask is None:
            step = (end - begin) // _MOST_LOOKED_AT + 1
            return range(begin, end, step), step
        step = kept.mask.count(1, begin, end) // _MOST_LOOKED_AT + 1
        return islice(compress(rows, kept.mask[begin:end]), 0, None, step), step

    def _running(self) -> Iterator[int]:
        return (row for row, flags in enumerate(self._columns["flags"]) if flags >> STATE_SHIFT & STATE == RUNNING)

    def _above(self, row: int) -> Iterator[int]:
        parent = self._table.parent
        for _ in range(_MOST_ABOVE):
            row = parent[row]
            if row < 0:
                return
            yield row

    def edges(self, row: int) -> list[tuple[int, int, int]]:
        """The first edges from and to a row, up to a limit."""
        columns = self._columns
        by_to, source, to, kind = columns["edge_by_to"], columns["edge_from"], columns["edge_to"], columns["edge_kind"]
        found: list[tuple[int, int, int]] = []
        at = bisect_left(source, row)
        while at < len(source) and source[at] == row and len(found) < _MOST_EDGES:
            found.append((row, to[at], kind[at]))
            at += 1
        at = bisect_left(by_to, row, key=to.__getitem__)
        most = len(found) + _MOST_EDGES
        while at < len(by_to) and to[by_to[at]] == row and len(found) < most:
            found.append((source[by_to[at]], row, kind[by_to[at]]))
            at += 1
        return found

    def spans(self, rows: Iterable[int]) -> dict[str, Sequence[int]]:
        """The columns of these spans, as the page has them."""
        rows = list(rows)
        columns, table = self._columns, self._table
        found: dict[str, Sequence[int]] = {"row": rows}
        for name in _SPAN[1:]:
            found[name] = [*map(columns[name].__getitem__, rows)]
        found["parent"] = [table.parent[row] + 1 for row in rows]
        found["submission"] = [*map(columns["submission"].__getitem__, rows)]
        return found


def _number(asked: Mapping[str, str], name: str, least: int, most: int) -> int:
    text = asked.get(name, "")
    if not re.fullmatch("[0-9]{1,19}", text) or not least <= int(text) <= most:
        raise WrongError(name)
    return int(text)


def _block(head: Mapping[str, Any], columns: Mapping[str, Iterable[int]]) -> bytes:
    text = json.dumps(plain(head), separators=(",", ":"), allow_nan=False).encode()
    return _LENGTH.pack(len(text)) + text + packed(columns)
