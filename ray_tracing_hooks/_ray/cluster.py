"""Which hook this cluster has, and whether every worker has run it, and so understands whatever a call carries.

Ray keeps one hook for a cluster, writes it before the first worker starts, and calls it in each process before the
first task (Ray 2.60 ``_private/node.py``, ``_write_cluster_info_to_kv``; ``_private/worker.py``, end of ``connect()``).
A worker in which it cannot be imported, or raises, ends. That makes all workers alike, except where

- the user calls our hook in a cluster whose own hook is another,
- this process joins such a cluster after a traced one: Ray does not call its hook a second time,
- the hook has been set while the cluster ran: whoever does that also writes :data:`SET_LATE`.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from ray_tracing_hooks._guard import failed

NAMESPACE = b"tracing"
HOOK = b"tracing_startup_hook"
SET_LATE = b"ray_tracing_hooks_set_late"
"""A key beside Ray's own in the cluster's key-value store: there are processes that the hook was not called in."""

JOB_TRACES = b"ray_tracing_hooks"
"""The namespace in which the drivers of a cluster tell the traces of their jobs, by the job's id."""

CLIENT_INVITATION = b"\x01"

_TIMEOUT = 5
"""Seconds after which the cluster's head is not waited for any longer."""

_PACKAGE = __name__.partition(".")[0]

all_traced = False
"""What :func:`look` has found."""

_called: bytes | None = None
"""The cluster's hook that Ray has called in this process, and that has called us, if it is not ours."""


def is_connecting() -> bool:
    """Whether it is Ray that calls the hook, at the end of connecting; later it is the user."""
    return not _worker().connected


def look(*, hook_runs: bool) -> None:
    """Find out about the cluster that this process is connected to; one short call to its head.

    ``hook_runs`` says that Ray is just calling the cluster's hook.
    """
    global all_traced, _called  # noqa: PLW0603  a process is connected to one cluster at a time
    found = _ask(HOOK, SET_LATE)
    hook = found.get(HOOK)
    if hook_runs:
        _called = hook
    all_traced = hook is not None and hook == _called and SET_LATE not in found


def has_hook() -> bool:
    """Whether the cluster has a hook, whoever's it is."""
    return HOOK in _ask(HOOK)


def own_hook() -> Callable[[], None] | None:
    """The hook of the cluster, if it is one of this package."""
    module, _, name = _ask(HOOK).get(HOOK, b"").decode("utf-8", "replace").partition(":")
    if module.partition(".")[0] != _PACKAGE:
        return None
    hook: Callable[[], None] = getattr(importlib.import_module(module), name)
    return hook


class JobTrace(NamedTuple):
    """The trace of a driver's root span, to which the calls belong that the driver makes outside of any other trace."""

    trace_id: bytes
    root_span_id: bytes
    flags: int
    """Of the W3C trace context."""
    driver_task_id: bytes


_JOB_TRACE = struct.Struct("<16s8sB24s")


def publish(job_id: str, trace: JobTrace) -> bool:
    """Tell the workers of a job its trace, which they will not ask for again; whether that was possible."""
    try:
        client = _worker().gcs_client
        added: int = client.internal_kv_put(job_id.encode(), _JOB_TRACE.pack(*trace), False, JOB_TRACES, _TIMEOUT)
    except Exception as error:  # noqa: BLE001  calls carry their context then
        failed("telling the workers of this job its trace", error)
        return False
    return added == 1


def published(job_id: str) -> JobTrace | None:
    """The trace of a job; None if its driver has not told one. Raises what Ray raises where that cannot be asked."""
    found = _worker().gcs_client.internal_kv_get(job_id.encode(), JOB_TRACES, _TIMEOUT)
    return JobTrace(*_JOB_TRACE.unpack(found)) if found is not None else None


def invite_client(job_id: str) -> bool:
    """Tell the client of a job that its server understands it; whether that was possible."""
    try:
        client, key = _worker().gcs_client, client_key(job_id)
        client.internal_kv_put(key, CLIENT_INVITATION, True, JOB_TRACES, _TIMEOUT)
    except Exception as error:  # noqa: BLE001  the client is traced from its server on
        failed("inviting this client", error)
        return False
    return True


def told_by_client(job_id: str) -> bytes | None:
    """What the client of a job has written in the place of the invitation, which else is still there.

    Raises what Ray raises where that cannot be asked.
    """
    told: bytes | None = _worker().gcs_client.internal_kv_get(client_key(job_id), JOB_TRACES, _TIMEOUT)
    return told


def client_key(job_id: str) -> bytes:
    """Where in :data:`JOB_TRACES` a client and its server meet (:mod:`ray_tracing_hooks._ray.client_context`)."""
    return f"{job_id}.client".encode()


def _ask(*keys: bytes) -> dict[bytes, bytes]:
    try:
        found: dict[bytes, bytes] = _worker().gcs_client.internal_kv_multi_get(list(keys), NAMESPACE)
    except Exception as error:  # noqa: BLE001  a cluster that cannot be asked is one that we know nothing of
        failed("asking the cluster for its hook", error)
        return {}
    return found


def _worker() -> Any:
    from ray._private.worker import global_worker  # noqa: PLC0415  the hook's module must be importable without Ray

    return global_worker
