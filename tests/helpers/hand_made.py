"""Runs made by hand: spans as Ray programs make them, with times in milliseconds since the run began."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from made_spans import lines
from typing_extensions import Self

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.model.span import CONSUMER, INTERNAL, PRODUCER, Span, State
from ray_tracing_hooks._insight.model.table import Table

MS = 1_000_000
START = 1_700_000_000_000_000_000
"""When runs begin, in nanoseconds since the epoch."""


class Call:
    """A call that a run made; executions are added to it."""

    def __init__(self, function: str, number: int, actor: str) -> None:
        self.function, self.actor = function, actor
        self.task = f"{number:016x}" + (actor or "f" * 24 + "01000000")
        self.span_id = ""

    def object(self, index: int = 1) -> str:
        """The id of its result, or of an item of a generator."""
        return self.task + index.to_bytes(4, "little").hex()


class HandMade:
    """The spans of a run under construction. What makes a span gives its id, to be the parent of others."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._numbers = itertools.count(1)
        self.parts = ""
        """What the processes that come say of the parts of Ray that make spans in them; nothing by default."""
        self.session = ""
        """The session of their cluster, unless it is empty."""
        self._resources: dict[tuple[str, str], dict[str, Any]] = {}

    @classmethod
    def driven(cls, end: float | None, *, start: float = 0, parts: str = "", **more: Any) -> tuple[Self, str]:
        """A run that begins with the span of its driver, which runs while ``end`` is None."""
        run = cls()
        run.parts = parts
        return run, run.driver(start, end, **more)

    def table(self, now: float | None = None) -> Table:
        return Table.of(self.spans, None if now is None else START + round(now * MS))

    def as_json_lines(self) -> bytes:
        """The spans as a file of OTLP-JSON has them, a line each."""
        return lines(*self.spans).encode()

    def actor(self) -> str:
        """The id of a new actor."""
        return f"{next(self._numbers):024x}01000000"

    def span(
        self,
        name: str,
        start: float,
        end: float | None,
        parent: str = "",
        *,
        kind: int = INTERNAL,
        attributes: dict[str, Any] | None = None,
        node: str = "n1",
        worker: str = "driver",
        error: str = "",
        state: State = "ended",
        clock: float = 0,
        trace: int = 1,
        events: Sequence[Any] = (),
    ) -> str:
        """Any span. ``clock`` is how much the node's clock is ahead."""
        number = next(self._numbers)
        resource = self._resources.setdefault(
            (node, worker),
            {
                names.DISTRO_NAME: names.SCOPE,
                "host.name": f"host-{node}",
                "process.pid": len(self._resources) + 1,
                names.RESOURCE_NODE_ID: node,
                names.RESOURCE_WORKER_ID: worker,
                names.RESOURCE_PROCESS_TYPE: "driver" if worker == "driver" else "worker",
                **({names.RESOURCE_PARTS: self.parts} if self.parts else {}),
                **({names.RESOURCE_SESSION_NAME: self.session} if self.session else {}),
            },
        )
        common = {names.RAY_NODE_ID: node, names.RAY_WORKER_ID: worker, names.RAY_JOB_ID: "01000000"}
        self.spans.append(
            Span(
                trace_id=f"{trace:032x}",
                span_id=f"{number:016x}",
                parent_id=parent,
                name=name,
                kind=kind,
                start_ns=START + round((start + clock) * MS),
                end_ns=0 if end is None else START + round((end + clock) * MS),
                status_code=2 if error else 0,
                status_message=error,
                attributes=common | ({names.ERROR_TYPE: error} if error else {}) | (attributes or {}),
                events=list(events),
                links=[],
                resource=resource,
                scope=names.SCOPE,
                state=state,
            )
        )
        return f"{number:016x}"

    def driver(self, start: float, end: float | None, **more: Any) -> str:
        return self.span("job.py ray.driver", start, end, state="ended" if end is not None else "running", **more)

    def submit(
        self,
        parent: str,
        function: str,
        at: float,
        took: float = 0,
        *,
        actor: str = "",
        arguments: Iterable[str] = (),
        worker: str = "driver",
        node: str = "n1",
        clock: float = 0,
        attributes: dict[str, Any] | None = None,
    ) -> Call:
        """A submission; ``arguments`` are ids of objects."""
        call = Call(function, next(self._numbers), actor)
        objects = list(arguments)
        own: dict[str, Any] = {names.RAY_FUNCTION: function, names.RAY_TASK_ID: call.task}
        if objects:
            own |= {names.RAY_ARGUMENT_IDS: objects[:64], names.RAY_ARGUMENT_COUNT: len(objects)}
        if actor:
            own |= {names.RAY_ACTOR_ID: actor, names.RAY_ACTOR_CLASS: function.partition(".")[0]}
        own |= attributes or {}
        name = names.submission_name(function)
        where: dict[str, Any] = {"worker": worker, "node": node, "clock": clock}
        call.span_id = self.span(name, at, at + took, parent, kind=PRODUCER, attributes=own, **where)
        return call

    def run(
        self,
        call: Call,
        start: float,
        end: float | None,
        *,
        worker: str = "w1",
        attributes: dict[str, Any] | None = None,
        submitted: float | None = None,
        **more: Any,
    ) -> str:
        """An execution of a call, the next attempt if there is one already."""
        own: dict[str, Any] = {names.RAY_FUNCTION: call.function, names.RAY_TASK_ID: call.task}
        if call.actor:
            own |= {names.RAY_ACTOR_ID: call.actor, names.RAY_ACTOR_CLASS: call.function.partition(".")[0]}
        if submitted is not None:
            own[names.RAY_SUBMIT_TIME] = START + round(submitted * MS)
        name = names.execution_name(call.function)
        own |= attributes or {}
        return self.span(name, start, end, call.span_id, kind=CONSUMER, attributes=own, worker=worker, **more)

    def task(self, parent: str, function: str, at: float, start: float, end: float | None, **more: Any) -> Call:
        """A submission that takes no time, and its only execution."""
        arguments = more.pop("arguments", ())
        call = self.submit(parent, function, at, actor=more.pop("actor", ""), arguments=arguments)
        self.run(call, start, end, **more)
        return call

    def started(self, worker: str, created: float, ready: float, *, processors: int = 2) -> None:
        """When the worker process of some spans was created, and when it was ready for work."""
        at = datetime.fromtimestamp((START + created * MS) / 1e9, timezone.utc)
        self._resources["n1", worker] |= {
            names.RESOURCE_CREATION_TIME: at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            names.RESOURCE_WORKER_READY: START + round(ready * MS),
            names.RESOURCE_PROCESSORS: processors,
        }

    def get(self, parent: str, objects: Sequence[Call | str], start: float, end: float | None, **more: Any) -> str:
        """A ``ray.get``."""
        return self._wait("ray.get", parent, objects, start, end, {}, more)

    def wait(
        self,
        parent: str,
        objects: Sequence[Call | str],
        start: float,
        end: float | None,
        *,
        ready: Sequence[Call | str],
        num_returns: int | None = None,
        **more: Any,
    ) -> str:
        """A ``ray.wait``, which without ``num_returns`` had to find as many as were ready, or one."""
        found = {
            names.RAY_NUM_RETURNS: max(1, len(ready)) if num_returns is None else num_returns,
            names.RAY_READY_OBJECT_IDS: _ids(ready)[:64],
            names.RAY_READY_OBJECT_COUNT: len(ready),
        }
        return self._wait("ray.wait", parent, objects, start, end, found, more)

    def put(self, parent: str, start: float, end: float, **more: Any) -> str:
        """A ``ray.put``; gives the id of the object."""
        object_id = f"00{next(self._numbers):014x}" + "f" * 24 + "01000000" + (100_000_001).to_bytes(4, "little").hex()
        self.span("ray.put", start, end, parent, attributes={names.RAY_OBJECT_IDS: [object_id]}, **more)
        return object_id

    def _wait(
        self,
        name: str,
        parent: str,
        objects: Sequence[Call | str],
        start: float,
        end: float | None,
        found: dict[str, Any],
        more: dict[str, Any],
    ) -> str:
        ids = _ids(objects)
        attributes = {names.RAY_OBJECT_IDS: ids[:64], names.RAY_OBJECT_COUNT: len(ids)} | found
        return self.span(name, start, end, parent, attributes=attributes, **more)


def workers_alone() -> HandMade:
    """The spans of a worker's node: the actor was asked for long before its worker was there, in a run elsewhere."""
    run = HandMade()
    actor = run.actor()
    for function, submitted, start, end in (("A.__init__", -5000, 2, 4), ("A.work", -4000, 5, 25)):
        call = run.submit("", function, submitted, actor=actor)
        run.run(call, start, end, submitted=submitted, worker="w1", attributes={"ray.actor_id": actor})
    run.spans = [span for span in run.spans if not span.name.endswith("ray.remote")]
    run.started("w1", -4900, -100)
    return run


def _ids(objects: Sequence[Call | str]) -> list[str]:
    return [each.object() if isinstance(each, Call) else each for each in objects]
