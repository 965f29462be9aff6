"""Lines of OTLP-JSON as this package writes them, read without making objects of all that is in them.

What spans of calls have in common is the same text each time: the name, the kind and most attributes. So it is parsed
when it is seen first, and looked up after that; what differs is taken out by regular expressions. A span that looks
otherwise is parsed alone. A line that does is left to the general reader. Nothing is taken that is no JSON but for
commas: one too many or too few between attributes is not noticed.
"""

from __future__ import annotations

import json
import re
import sys
from array import array
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._insight import read as reading
from ray_tracing_hooks._insight.columns import ENDED, LOST, NO_ID, OBJECT_KEYS, Columns

_RESOURCE, _SCOPE, _SPANS = '{"resource":', ',"scopeSpans":[{"scope":', ',"spans":['
_NEXT_SCOPE, _END_OF_RESOURCE = '{"scope":', "]}"

_HEAD = re.compile(
    r'\{"traceId":"(.{32})","spanId":"(.{16})",(?:"parentSpanId":"(.{16})",)?(?:"flags":[0-9]{1,10},)?'
    r'"startTimeUnixNano":"([1-8][0-9]{18})","endTimeUnixNano":"([1-8][0-9]{18})",'
    r'"name":"[^"\\]*","kind":[0-9],"attributes":\[(?=\{"key":"ray\.(?:remote|pid)")'
)
"""A span of this package up to its attributes. Times of 19 digits, from the year 2001 on, fit into 64 bits. Whether ids
are hex is seen when those of a line are made numbers, all at once."""


def _text(key: str) -> str:
    return rf'(?:\{{"key":"{re.escape(key)}","value":\{{"stringValue":"([0-9a-f]{{1,64}})"\}}\}},?)?'


def _task(key: str) -> str:
    return _text(key).replace("([", '(.{48}(?=")|[')


def _ids(*keys: str) -> str:
    several = "|".join(map(re.escape, keys))
    items = r'((?:\{"stringValue":"[0-9a-f]{1,64}"\},?)*)'
    return rf'(?:\{{"key":"(?:{several})","value":\{{"arrayValue":\{{"values":\[{items}\]\}}\}}\}},?)?'


def _count(*keys: str) -> str:
    return rf'(\{{"key":"(?:{"|".join(map(re.escape, keys))})","value":\{{"intValue":"\d{{1,18}}"\}}\}},?)?'


_TAIL = re.compile(
    _task(names.RAY_PARENT_TASK_ID)
    + _task(names.RAY_TASK_ID)
    + _task(names.RAY_PARENT_TASK_ID)
    + _text(names.RAY_ACTOR_ID)
    + _ids(names.RAY_ARGUMENT_IDS, names.RAY_OBJECT_IDS)
    + _count(names.RAY_ARGUMENT_COUNT, names.RAY_OBJECT_COUNT)
    + rf'(?:\{{"key":"{re.escape(names.RAY_SUBMIT_TIME)}","value":\{{"intValue":"([1-8]\d{{18}})"\}}\}})?\]\}}'
)
"""What differs from call to call, and the end of the span."""

_VARYING = 'task_id","value":{"stringValue":"'
"""What the first of them that every call has goes on with: a long text is found faster than a short one."""

_VARIES = frozenset(
    {names.RAY_TASK_ID, names.RAY_PARENT_TASK_ID, names.RAY_SUBMIT_TIME, names.RAY_READY_OBJECT_IDS, *OBJECT_KEYS}
)
_TRACE = re.compile("[0-9a-f]{32}")
_NO_PARENT = "0" * 16
_FIELDS = _HEAD.groups + _TAIL.groups + 1
_MOST_SHARED = 8192
"""What spans have in common is not looked for farther than this: the next one that has a task may be far away."""

_KEY, _PREFIX = '{"key":"ray.', "parent_"

_QUOTED = re.compile('"stringValue":"([0-9a-f]+)"')

_decode = json.JSONDecoder().raw_decode


def add_line(columns: Columns, line: bytes, offset: int) -> str | None:
    """Add the spans of a line, which begins at ``offset``; gives what is wrong with one of them, or an empty text.

    None, and nothing is added, if the line does not look as one of this package's.
    """
    before = len(columns)
    try:
        found = _Line(columns, line.decode("ascii"))
        found.read()
    except (*reading.MALFORMED, IndexError):
        return None
    try:
        return found.add(offset)
    except reading.MALFORMED:
        columns.truncate(before)
        return None


class _Line:
    def __init__(self, columns: Columns, text: str) -> None:
        self._columns, self._text = columns, text
        self._calls: list[Any] = []
        """What was found of each call: the groups of ``_HEAD`` and ``_TAIL``, and what it shares with others."""
        self._others: list[tuple[int, dict[str, Any], int, int]] = []
        """How many calls stand before each other span, the span, its resource and its scope."""
        self._scopes: list[tuple[int, int, int]] = []
        """Resource and scope of each list of spans, and how many calls are in it."""

    # --- reading: what the line says ------------------------------------------------------------------------------

    def read(self) -> None:
        position = self._expect(0, '{"resourceSpans":[')
        while True:
            position = self._resource(position)
            if self._text[position] != ",":
                break
            position += 1
        position = self._expect(position, "]}")
        if self._text[position:].strip():
            raise ValueError("more than one document")

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
        text, columns = self._text, self._columns
        end = text.index(_SPANS, position)
        described = text[position:end]
        scope = columns.scope_of_text.get(described)
        if scope is None:
            name = str(json.loads(described).get("name", ""))
            scope = columns.scope_of_text[described] = columns.scopes.setdefault(name, len(columns.scopes))
        position = end + len(_SPANS)
        calls = len(self._calls)
        while True:
            after = self._call(position)
            if not after:
                other, after = _decode(text, position)
                self._others.append((len(self._calls) // _FIELDS, other, resource, scope))
            if text[after] != ",":
                break
            position = after + 1
        self._scopes.append((resource, scope, (len(self._calls) - calls) // _FIELDS))
        return self._expect(after, "]}")

    def _call(self, position: int) -> int:
        """Take a span that looks as expected, and give where it ends; else 0."""
        text = self._text
        head = _HEAD.match(text, position)
        if head is None:
            return 0
        at = head.end()
        at = text.find(_VARYING, at, at + _MOST_SHARED)
        varying = at - len(_KEY)
        if not text.startswith(_KEY, varying):
            varying -= len(_PREFIX)
        tail = _TAIL.match(text, varying) if at >= 0 else None
        if tail is None:
            return 0
        groups = tail.groups()
        # The shared part begins with the name.
        key = text[head.end(5) + 2 : varying], groups[3], groups[5]
        shared = self._columns.site_of_text.get(key)
        if shared is None:
            try:
                shared = self._columns.site_of_text[key] = self._shared(*key)
            except reading.MALFORMED:
                return 0
        self._calls += head.groups()
        self._calls += groups
        self._calls.append(shared)
        return tail.end()

    def _shared(self, shared: str, actor: str | None, count: str | None) -> tuple[int, int, int, int]:
        """Name, kind, site and state of what many spans have in common. Raises one of ``reading.MALFORMED``."""
        more = [text.rstrip(",") for text in (count,) if text]
        described = json.loads("{" + ",".join([shared.rstrip(","), *more]).replace("[,", "[") + "]}")
        if set(described) != {"name", "kind", "attributes"}:
            raise ValueError("more than a name, a kind and attributes")
        attributes = reading.plain_attributes(described["attributes"])
        if not _VARIES.isdisjoint(attributes):
            raise ValueError("an attribute of one call")
        if actor:
            attributes[names.RAY_ACTOR_ID] = actor
        columns = self._columns
        name = columns.names.setdefault(described["name"], len(columns.names))
        state = LOST if attributes.get(names.RAY_END_ESTIMATED) else ENDED
        return name, described["kind"], columns.site_of(attributes), state

    # --- adding: into columns -------------------------------------------------------------------------------------

    def add(self, offset: int) -> str:
        """Add what was found, calls first, and give what is wrong with it. Raises one of ``reading.MALFORMED``."""
        columns, first = self._columns, len(self._columns)
        count = len(self._calls) // _FIELDS
        if count:
            self._add_calls(count)
        origins = columns.origins
        origins.begin(offset, first)
        for number, (calls, *_) in enumerate(self._others, 1):
            origins.begin(offset, first + calls, calls + number)
        problem = ""
        for number, (calls, described, resource, scope) in enumerate(self._others):
            origins.begin(offset, len(columns), calls + number)
            try:
                columns.add(described, resource, scope)
            except reading.MALFORMED as error:
                problem = problem or f"a span that is not OTLP: {reading.explain(error)}"
        return problem

    def _add_calls(self, count: int) -> None:
        columns = self._columns
        (trace, span_id, parent, start, end, caller, task, caller_2, _, objects, _, submitted, shared) = (
            self._calls[field::_FIELDS] for field in range(_FIELDS)
        )
        span_ids = _numbers(span_id)
        traces = columns.traces
        for trace_id in dict.fromkeys(trace):
            if trace_id not in traces:
                if not _TRACE.fullmatch(trace_id) or not int(trace_id, 16):
                    raise ValueError("no id of a trace")
                traces[trace_id] = len(traces)
        if 0 in span_ids:
            raise ValueError("no id of a span")
        callers = [first or second for first, second in zip(caller, caller_2, strict=True)]
        named = "".join(filter(None, (*task, *callers)))
        if bytes.fromhex(named if len(named) % 2 == 0 else named + "0").hex()[: len(named)] != named:
            raise ValueError("no id of a task")
        first = len(columns)
        for row, quoted in enumerate(objects):
            if quoted:
                columns.objects.add(first + row, _QUOTED.findall(quoted))
        ids = columns.ids
        columns.start.fromlist(list(map(int, start)))
        columns.end.fromlist(list(map(int, end)))
        columns.span_id.extend(span_ids)
        columns.parent_id.extend(_numbers([each or _NO_PARENT for each in parent]))
        columns.trace.fromlist(list(map(traces.__getitem__, trace)))
        columns.task.fromlist([ids[each] if each else NO_ID for each in task])
        columns.caller.fromlist([ids[each] if each else NO_ID for each in callers])
        columns.submitted.fromlist([int(each) if each else 0 for each in submitted])
        name, kind, site, state = zip(*shared, strict=True)
        columns.name.fromlist(list(name))
        columns.site.fromlist(list(site))
        columns.kind += bytes(kind)
        columns.state += bytes(state)
        columns.status += bytes(count)
        for resource, scope, spans in self._scopes:
            columns.resource.extend(array("I", [resource]) * spans)
            columns.scope.extend(array("I", [scope]) * spans)


def _numbers(ids: list[str]) -> array[int]:
    """The numbers of ids of 8 bytes. Raises ValueError where one is none."""
    numbers = bytes.fromhex("".join(ids))
    if len(numbers) != 8 * len(ids):
        raise ValueError("an id with spaces")
    found = array("Q", numbers)
    if sys.byteorder == "little":
        found.byteswap()
    return found
