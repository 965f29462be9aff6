"""Every span name and attribute key that this package writes.

The names and keys of Ray's own tracing (``ray.util.tracing``) are kept, so that dashboards made for it go on working.
Where Ray's meaning is ambiguous ours is stated here.
"""

from __future__ import annotations

__all__ = [
    "DISTRO_NAME",
    "DISTRO_VERSION",
    "DRIVER_DIED",
    "ERROR_TYPE",
    "EXCEPTION_MESSAGE",
    "EXCEPTION_STACKTRACE",
    "EXCEPTION_TYPE",
    "OUT_OF_MEMORY",
    "RAY_ACTOR_CLASS",
    "RAY_ACTOR_ID",
    "RAY_ACTOR_METHOD",
    "RAY_ATTEMPT",
    "RAY_END_ESTIMATED",
    "RAY_FUNCTION",
    "RAY_GENERATOR_ITEMS",
    "RAY_JOB_ID",
    "RAY_NODE_ID",
    "RAY_NUM_RETURNS",
    "RAY_OBJECT_COUNT",
    "RAY_OBJECT_IDS",
    "RAY_PARENT_TASK_ID",
    "RAY_PID",
    "RAY_READY_OBJECT_IDS",
    "RAY_REMOTE",
    "RAY_SUBMIT_TIME",
    "RAY_TASK_ID",
    "RAY_TIMEOUT",
    "RAY_WORKER_ID",
    "RESOURCE_GCS_ADDRESS",
    "RESOURCE_NODE_ID",
    "RESOURCE_PROCESS_TYPE",
    "RESOURCE_RAY_VERSION",
    "RESOURCE_SESSION_NAME",
    "RESOURCE_WORKER_ID",
    "SCOPE",
    "TASK_CANCELLED",
    "WORKER_DIED",
    "driver_name",
    "execution_name",
    "submission_name",
]

SCOPE = "ray_tracing_hooks"
"""Instrumentation scope of the spans that this package makes."""

RAY_REMOTE = "ray.remote"
"""``function`` for tasks, ``actor`` for actor creation and methods."""

RAY_FUNCTION = "ray.function"
"""``module.function`` of a task, ``Class.method`` of an actor."""

RAY_ACTOR_CLASS = "ray.actor_class"
RAY_ACTOR_METHOD = "ray.actor_method"

RAY_PID = "ray.pid"
"""Process id of the process that recorded the span, as text."""

RAY_JOB_ID = "ray.job_id"
RAY_NODE_ID = "ray.node_id"
"""Node of the process that recorded the span."""

RAY_WORKER_ID = "ray.worker_id"
"""Worker id of the process that recorded the span."""

RAY_ACTOR_ID = "ray.actor_id"
"""The actor that is called or created, on both spans of a call."""

RAY_TASK_ID = "ray.task_id"
"""The task that the call makes, on both spans of a call."""

RAY_PARENT_TASK_ID = "ray.parent_task_id"
"""The task that made the call, on both spans of a call. A driver has a task id too."""

RAY_SUBMIT_TIME = "ray.submit_time_unix_nano"
"""On an execution: when the call was submitted, by the clock of the caller's node, in nanoseconds since the epoch. Not
there where the call carried nothing: most calls of drivers. Their submission's span has it as its start."""

RAY_ATTEMPT = "ray.attempt"
"""On an execution that is a retry: its number, 1 for the first retry."""

RAY_GENERATOR_ITEMS = "ray.generator_items"
"""On the execution of a generator: how many items it yielded."""

RAY_OBJECT_IDS = "ray.object_ids"
"""On ``ray.get`` and ``ray.wait``: the first 64 objects that are waited for; on ``ray.put`` the one that is stored.
The id of a task's result begins with the id of the task."""

RAY_OBJECT_COUNT = "ray.object_count"
"""On ``ray.get`` and ``ray.wait``: how many objects are waited for."""

RAY_READY_OBJECT_IDS = "ray.ready_object_ids"
"""On ``ray.wait``: those that were ready, the first 64."""

RAY_NUM_RETURNS = "ray.num_returns"
"""On ``ray.wait``: how many had to be ready."""

RAY_TIMEOUT = "ray.timeout"
"""On ``ray.get`` and ``ray.wait``: how long they wait at most, in seconds; absent where that is for ever."""

RAY_END_ESTIMATED = "ray.end_estimated"
"""True on a span whose process died before the span ended; its end time is an estimate."""

ERROR_TYPE = "error.type"
"""Qualified class of the exception that ended the span (the cause, not Ray's wrapper); absent on success."""

WORKER_DIED = "worker_died"
DRIVER_DIED = "driver_died"
"""The ``error.type`` of a span that was cut off by the end of its process, of which the status tells what is known."""

TASK_CANCELLED = "ray.exceptions.TaskCancelledError"
OUT_OF_MEMORY = "ray.exceptions.OutOfMemoryError"
"""The same where that end is known to be a cancellation, or Ray's memory monitor: what the caller gets."""

EXCEPTION_TYPE = "exception.type"
EXCEPTION_MESSAGE = "exception.message"
EXCEPTION_STACKTRACE = "exception.stacktrace"

DISTRO_NAME = "telemetry.distro.name"
DISTRO_VERSION = "telemetry.distro.version"
RESOURCE_NODE_ID = "ray.node.id"
RESOURCE_WORKER_ID = "ray.worker.id"
RESOURCE_PROCESS_TYPE = "ray.worker.process_type"
"""``driver`` or ``worker``."""

RESOURCE_RAY_VERSION = "ray.version"
RESOURCE_SESSION_NAME = "ray.cluster.session_name"
RESOURCE_GCS_ADDRESS = "ray.cluster.gcs_address"


def submission_name(function: str) -> str:
    """The name of the PRODUCER span that covers ``.remote()``; ``function`` is as in ``ray.function``."""
    return f"{function} ray.remote"


def driver_name(script: str) -> str:
    """The name of the root span of a driver; ``script`` is the file name of the program."""
    return f"{script} ray.driver"


def execution_name(function: str) -> str:
    """The name of the CONSUMER span that covers the work in the worker."""
    return f"{function} ray.remote_worker"
