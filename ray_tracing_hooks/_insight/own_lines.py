"""Lines of OTLP-JSON as this package writes them, read without making objects of all that is in them.

What spans of calls have in common is the same text each time: the name, the kind and most attributes. So it is parsed
when it is seen first, and looked up after that; what differs is taken out by regular expressions. A span that looks
otherwise is parsed alone. A line that does is left to the general reader. Nothing is taken that is no JSON but for
commas: one too many or too few between attributes is not noticed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import ENDED, LOST, NONE, Columns

_RESOURCE, _SCOPE, _SPANS = '{"resource":', ',"scopeSpans":[{"scope":', ',"spans":['
_NEXT_SCOPE, _END_OF_RESOURCE = '{"scope":', "]}"

_HEAD = re.compile(
    r'\{"traceId":"([0-9a-f]{32})","spanId":"([0-9a-f]{16})",(?:"parentSpanId":"([0-9a-f]{16})",)?(?:"flags":\d{1,10},)?'
    r'"startTimeUnixNano":"([1-8]\d{18})","endTimeUnixNano":"([1-8]\d{18})",'
    r'"name":"[^"\\]*","kind":\d,"attributes":\[(?=\{"key":"ray\.(?:remote|pid)")'
)
"""A span of this package up to its attributes. Times of 19 digits, from the year 2001 on, fit into 64 bits."""


def _text(key: str) -> str:
    return rf'(?:\{{"key":"{re.escape(key)}","value":\{{"stringValue":"([0-9a-f]{{1,64}})"\}}\}},?)?'


def _ids(*keys: str) -> str:
    several = "|".join(map(re.escape, keys))
    items = r'((?:\{"stringValue":"[0-9a-f]{1,64}"\},?)*)'
    return rf'(?:\{{"key":"(?:{several})","value":\{{"arrayValue":\{{"values":\[{items}\]\}}\}}\}},?)?'


def _count(*keys: str) -> str:
    return rf'(\{{"key":"(?:{"|".join(map(re.escape, keys))})","value":\{{"intValue":"\d{{1,18}}"\}}\}},?)?'


_TAIL = re.compile(
    _text(names.RAY_PARENT_TASK_ID)
    + _text(names.RAY_TASK_ID)
    + _text(names.RAY_PARENT_TASK_ID)
    + _text(names.RAY_ACTOR_ID)
    + _ids(names.RAY_ARGUMENT_IDS, names.RAY_OBJECT_IDS)
    + _count(names.RAY_ARGUMENT_COUNT, names.RAY_OBJECT_COUNT)
    + rf'(?:\{{"key":"{re.escape(names.RAY_SUBMIT_TIME)}","value":\{{"intValue":"([1-8]\d{{18}})"\}}\}})?\]\}}'
)
"""What differs from call to call, and the end of the span."""

_VARYING = 'task_id"'
"""The end of the first key that does."""

_QUOTED = re.compile('"stringValue":"([0-9a-f]+)"')

_decode = json.JSONDecoder().raw_decode


def add_line(columns: Columns, line: bytes, index: int) -> str | None:
    """Add the spans of a line; gives what is wrong with one of them, or an empty text.

    None, and nothing is added, if the line does not look as one of this package's.
    """
    before = len(columns)
    try:
        return _Line(columns, line.decode("ascii"), index).add()
    except (*reading.MALFORMED, IndexError):
        columns.truncate(before)
        return None


class _Line:
    def __init__(self, columns: Columns, text: str, index: int) -> None:
        self._columns, self._text, self._index = columns, text, index
        self._place = 0
        self._rows: list[tuple[Any, ...]] = []
        self._others: list[tuple[Any, int, int, int]] = []

    def add(self) -> str:
        position = self._expect(0, '{"resourceSpans":[')
        while True:
            position = self._resource(position)
            if self._text[position] != ",":
                break
            position += 1
        position = self._expect(position, "]}")
        if self._text[position:].strip():
            raise ValueError("more than one document")
        return self._finish()

    def _expect(self, position: int, what: str) -> int:
        if not self._text.startswith(what, position):
            raise ValueError(f"no {what}")
        return position + len(what)

    def _resource(self, position: int) -> int:
        position = self._expect(position, _RESOURCE)
        end = self._text.index(_SCOPE, position)
        described = self._text[position:end]
        resource = self._columns.resource_of_text.get(described)
        if resource is None:
            resource = self._columns.resource_index(json.loads(described))
            self._columns.resource_of_text[described] = resource
        position = end + len(_SCOPE)
        while True:
            position = self._scope(position, resource)
            if self._text[position] != ",":
                break
            position = self._expect(position + 1, _NEXT_SCOPE)
        return self._expect(position, _END_OF_RESOURCE)

    def _scope(self, position: int, resource: int) -> int:
        end = self._text.index(_SPANS, position)
        described = self._text[position:end]
        columns = self._columns
        scope = columns.scope_of_text.get(described)
        if scope is None:
            name = str(json.loads(described).get("name", ""))
            scope = columns.scope_of_text[described] = columns.scopes.setdefault(name, len(columns.scopes))
        position = end + len(_SPANS)
        while True:
            position = self._call(position, resource, scope) or self._any(position, resource, scope)
            self._place += 1
            if self._text[position] != ",":
                break
            position += 1
        return self._expect(position, "]}")

    def _any(self, position: int, resource: int, scope: int) -> int:
        described, end = _decode(self._text, position)
        self._others.append((described, resource, scope, self._place))
        return end

    def _call(self, position: int, resource: int, scope: int) -> int:
        """Add a span that looks as expected, and give where it ends; else 0."""
        text, columns = self._text, self._columns
        head = _HEAD.match(text, position)
        if head is None:
            return 0
        # The shared part begins with the name.
        begin = head.end(5) + 2
        varying = text.rfind('{"key":"', begin, text.find(_VARYING, head.end()) + 1)
        tail = _TAIL.match(text, varying) if varying > 0 else None
        if tail is None:
            return 0
        trace_id, span_id, parent_id, start, end = head.groups()
        caller, task, caller_2, actor, objects, count, submitted = tail.groups()
        shared = text[begin:varying]
        known = columns.site_of_text.get((shared, actor, count))
        if known is None:
            known = columns.site_of_text[shared, actor, count] = self._shared(shared, actor, count)
        trace = columns.traces.get(trace_id)
        number = int(span_id, 16)
        if trace is None or not number:
            return 0
        if objects:
            columns.objects[len(columns) + len(self._rows)] = tuple(_QUOTED.findall(objects))
        ids = columns.ids
        caller = caller or caller_2
        name, kind, site, state = known
        self._rows.append((
            *(int(start), int(end), number, int(parent_id, 16) if parent_id else 0, trace, name, resource, scope, site),
            ids.setdefault(task, len(ids)) if task else NONE,
            ids.setdefault(caller, len(ids)) if caller else NONE,
            *(self._index, self._place, int(submitted) if submitted else 0, kind, 0, state),
        ))  # fmt: skip
        return tail.end()

    def _shared(self, shared: str, actor: str | None, count: str | None) -> tuple[int, int, int, int]:
        """Name, kind, site and state of what many spans have in common. Raises one of ``reading.MALFORMED``."""
        more = [text.rstrip(",") for text in (count,) if text]
        described = json.loads("{" + ",".join([shared.rstrip(","), *more]).replace("[,", "[") + "]}")
        if set(described) != {"name", "kind", "attributes"}:
            raise ValueError("more than a name, a kind and attributes")
        attributes = reading.plain_attributes(described["attributes"])
        if actor:
            attributes[names.RAY_ACTOR_ID] = actor
        columns = self._columns
        name = columns.names.setdefault(described["name"], len(columns.names))
        state = LOST if attributes.get(names.RAY_END_ESTIMATED) else ENDED
        return name, described["kind"], columns.site_of(attributes), state

    def _finish(self) -> str:
        """Add what was found, and give what is wrong with it."""
        if self._rows:
            self._columns.extend(zip(*self._rows, strict=True))
        problem = ""
        for described, resource, scope, place in self._others:
            try:
                self._columns.add(described, resource, scope, self._index, place)
            except reading.MALFORMED as error:
                problem = problem or f"a span that is not OTLP: {reading.explain(error)}"
        return problem
