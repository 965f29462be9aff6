"""Processes of Ray's for tests of what becomes of their spans: they write those of calls, as Ray's do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry.trace import TraceState

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._formats.encoded_span.encode import identity_of
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, Template
from ray_tracing_hooks._record.sampling import from_environment
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._ship.folder import Folder
from ray_tracing_hooks._ship.follow import Follower
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.sink import Batch
from ray_tracing_hooks._spool.writer import SpoolWriter

WHEREABOUTS = {
    names.RAY_PID: "123",
    names.RAY_JOB_ID: "01000000",
    names.RAY_NODE_ID: "a" * 56,
    names.RAY_WORKER_ID: "b" * 56,
}
TASK = encode.text_attribute_prefix(names.RAY_TASK_ID, 48) + b"c" * 48
CALLER = encode.text_attribute_prefix(names.RAY_PARENT_TASK_ID, 48) + b"d" * 48
ACTOR = encode.text_attribute_prefix(names.RAY_ACTOR_ID, 32) + b"e" * 32
TRACE = b"t" * 16
MS = 10**6
T0 = 1_700_000_000 * 10**9


class Process:
    """A process of Ray's that writes spans of calls to a spool."""

    def __init__(self, folder: Path, resource: Mapping[str, Any] | None = None, scope: str = names.SCOPE) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._writer = SpoolWriter(str(folder))
        sampler = from_environment({})
        assert sampler is not None
        self.recorder = Recorder(
            self._writer,
            resource=encode.resource(resource or {"service.name": "job", "process.pid": 7}),
            scope=encode.scope(scope, "1"),
            sampler=sampler,
            limits=SpanLimits(),
        )

    def submit(self, number: int, *, at: int, took: int = MS, method: str = "", additions: bytes = b"") -> None:
        """The span of a submission, as ``_ray.submission`` makes it."""
        what = Template("f ray.remote", 4, {**of(method), **WHEREABOUTS})
        identity = identity_of(TRACE, span_id(number), Parent(TRACE, b"p" * 8, 3, None, remote=False))
        self.recorder.record(what, identity, at, at + took, CALLER + TASK + additions)

    def begin(
        self,
        number: int,
        *,
        at: int,
        method: str = "",
        submitted: int = 0,
        attempt: int = 0,
        state: str = "",
    ) -> RecordedSpan:
        """The span of the execution of a submission, as ``_ray.execution`` begins it."""
        what = Template("f ray.remote_worker", 5, {**of(method), **WHEREABOUTS})
        first = TASK + CALLER + (ACTOR if method else b"")
        if submitted:
            first += encode.attribute(names.RAY_SUBMIT_TIME, submitted)
        if attempt:
            first += encode.attribute(names.RAY_ATTEMPT, attempt)
        trace_state = TraceState.from_header([state]) if state else None
        parent = Parent(TRACE, span_id(number), 3, trace_state, remote=True)
        return self.recorder.start(what, TRACE, 3, parent, first, at)

    def execute(self, number: int, *, at: int, took: int = MS, **how: Any) -> None:
        self.begin(number, at=at, **how).end(at + took)

    def close(self) -> None:
        self._writer.close()

    def batches(self) -> list[Batch]:
        """What the shipper finds."""
        self.close()
        look = Folder(str(self._folder)).snapshot(set())
        return [batch for portion in Follower({}, Problems(), reports=True).follow(look) for batch in portion]


def of(method: str) -> dict[str, str]:
    if not method:
        return {names.RAY_REMOTE: "function", names.RAY_FUNCTION: "module.work"}
    what = {names.RAY_REMOTE: "actor", names.RAY_ACTOR_CLASS: "Actor", names.RAY_ACTOR_METHOD: method}
    return {**what, names.RAY_FUNCTION: f"Actor.{method}"}


def span_id(number: int) -> bytes:
    return number.to_bytes(8, "big")
