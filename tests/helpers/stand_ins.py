"""Stand-ins for what Ray hands to the instrumentation in a task and at a call, where its speed or its faults are in
question. That it works with Ray itself is for the tests in tests/ray.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from opentelemetry.proto.trace.v1 import trace_pb2

from ray_tracing_hooks import _logs
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.cluster import Cluster, JobTrace
from ray_tracing_hooks._ray.process import DRIVER, WORKER, RayProcess
from ray_tracing_hooks._ray.rates import RateLimits
from ray_tracing_hooks._ray.templates import Selection
from ray_tracing_hooks._ray.tracing import Options, Tracing
from ray_tracing_hooks._record import sampling
from ray_tracing_hooks._record.limits import SpanLimits
from ray_tracing_hooks._record.recorder import Recorder, UnsampledRecorder
from ray_tracing_hooks._record.sampling import KeepRule
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._spool import layout
from ray_tracing_hooks._spool.reader import SegmentReader, iterate
from ray_tracing_hooks._spool.writer import SpoolWriter

JOB_ID = "01000000"
TASK_ID = bytes(range(20)) + bytes.fromhex(JOB_ID)
DRIVER_TASK_ID = b"\xff" * 20 + bytes.fromhex(JOB_ID)


PARTS = ("task", "actor")


class Id:
    """An id of Ray's."""

    def __init__(self, value: bytes) -> None:
        self._value = value

    def binary(self) -> bytes:
        return self._value

    def hex(self) -> str:
        return self._value.hex()


class CoreWorker:
    def __init__(self, task_id: bytes) -> None:
        self._task_id = Id(task_id)
        # 0 for a driver, 1 for the tasks that it calls, 2 for those that these call.
        self.depth = 1

    def get_current_task_id(self) -> Id:
        return self._task_id

    def get_current_job_id(self) -> Id:
        return Id(bytes.fromhex(JOB_ID))

    def get_current_task_attempt_number(self) -> int:
        return 0

    def get_task_depth(self) -> int:
        return self.depth


class Method:
    """``actor.method``, of an actor of this job."""

    _num_returns = 1
    _decorator = None
    _method_name = "method"

    def __init__(self) -> None:
        self._actor = SimpleNamespace(
            _ray_is_cross_language=False,
            _ray_actor_id=Id(TASK_ID[8:]),
            _ray_actor_creation_function_descriptor=SimpleNamespace(class_name="Actor", module_name="__main__"),
        )


class ObjectRef(Id):
    """A reference to an object."""

    def __init__(self, task_id: bytes) -> None:
        super().__init__(task_id + bytes(4))
        self._task_id = Id(task_id)

    def task_id(self) -> Id:
        return self._task_id


class Process(RayProcess):
    def of_actor(self) -> dict[str, Any]:
        return {}

    def object_ref(self) -> type[Any]:
        return ObjectRef


def recorder(folder: Path) -> Recorder:
    sampler = sampling.from_environment({})
    assert sampler is not None
    return Recorder(
        SpoolWriter(str(folder)),
        resource=encode.resource({"service.name": "test"}),
        scope=encode.scope("test"),
        sampler=sampler,
        limits=SpanLimits(),
    )


def tracing_of(
    folder: Path,
    mode: int = WORKER,
    *,
    selection: Selection | None = None,
    rate_limits: RateLimits | None = None,
    carries_submit_time: bool = False,
    cluster: Cluster | None = None,
    rule: KeepRule | None = None,
) -> Tracing:
    """Tracing of a worker, or of a driver, that records into ``folder``: by default tasks and actors, and what the
    ``rule`` selects of traces that are not sampled.
    """
    core_worker: Any = CoreWorker(DRIVER_TASK_ID if mode == DRIVER else TASK_ID)
    process = Process(
        mode=mode,
        session_name="session",
        session_dir=os.fspath(folder),
        node_id="ab" * 28,
        worker_id="cd" * 28,
        job_id=JOB_ID if mode == DRIVER else "",
        namespace="",
        node_ip="",
        gcs_address="",
        raylet_socket="",
        owns_cluster=False,
        ray_version="2.60.0",
        worker=SimpleNamespace(core_worker=core_worker),
    )
    selection = selection or Selection(PARTS)
    made = recorder(folder)
    if rule is not None:
        made.unsampled = UnsampledRecorder(
            SpoolWriter(str(folder)),
            resource=encode.resource({"service.name": "test", "host.name": "here"}),
            scope=encode.scope("test"),
            sampler=made.sampler,
            limits=made.limits,
            rule=rule,
            of_caller=encode.resource({"service.name": "test"}),
        )
    return Tracing(
        made,
        process,
        cluster or Cluster(),
        Options(selection, rate_limits=rate_limits),
        carries_submit_time=carries_submit_time,
    )


def stand_in(**attributes: Any) -> None:
    """Have all clusters of this process answer so, for programs that measure."""
    for name, value in attributes.items():
        setattr(Cluster, name, value)


def worker_of_job(folder: Path, rule: KeepRule | None = None) -> Tracing:
    """Tracing of a worker that has been given its first task, and has asked the cluster for the trace of its job."""
    made = tracing_of(folder, rule=rule)
    made.job.load_job_trace(JOB_ID, task_is_there=True)
    return made


def driver_of_job(folder: Path, job: JobTrace, rule: KeepRule | None = None) -> Tracing:
    """Tracing of a driver with this root span, which has published the trace of its job if its cluster takes that."""
    made = tracing_of(folder, DRIVER, rule=rule)
    made.recorder.fallback = Parent(job.trace_id, job.root_span_id, job.flags, None, remote=False)
    made.calls.publish_job_trace()
    return made


def joined(recorder: Recorder, folder: str = os.devnull) -> _logs.Correlation:
    """What log records are joined to: spans of ``recorder``, in a process that writes log records to ``folder``."""
    return _logs.Correlation(recorder, SpoolWriter(folder), encode.resource({"service.name": "test"}))


def spooled_spans(folder: Path) -> list[trace_pb2.Span]:
    """What was recorded, as protobuf reads it."""
    readers = [SegmentReader(path) for _, paths, _ in iterate(str(folder)) for path in paths]
    payloads = [payload for reader in readers for kind, payload, _ in reader.read() if kind == layout.SPAN]
    return [trace_pb2.Span.FromString(payload[2:]) for payload in payloads]
