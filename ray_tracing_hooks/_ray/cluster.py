"""Which hook this cluster has, and whether every worker has run it, and so understands whatever a call carries.

Ray keeps one hook for a cluster, writes it before the first worker starts, and calls it in each process before the
first task (Ray 2.60 ``_private/node.py``, ``_write_cluster_info_to_kv``; ``_private/worker.py``, end of ``connect()``).
A worker in which it cannot be imported, or raises, ends. That makes all workers alike, except where

- the user calls our hook in a cluster whose own hook is another,
- this process joins such a cluster after a traced one: Ray does not call its hook a second time,
- the hook has been set while the cluster ran: whoever does that also writes :data:`SET_LATE`.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._exceptions import is_interruption
from ray_tracing_hooks._guard import failed

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._record.recorder import Recorder

NAMESPACE = b"tracing"
HOOK = b"tracing_startup_hook"
SET_LATE = b"ray_tracing_hooks_set_late"
"""A key beside Ray's own in the cluster's key-value store: there are processes that the hook was not called in."""

JOB_TRACES = b"ray_tracing_hooks"
"""The namespace in which the drivers of a cluster tell the traces of their jobs, by the job's id."""

CLIENT_INVITATION = b"\x01"

_TIMEOUT, _TIMEOUT_AT_END = 5, 1
"""Seconds after which the cluster's head is not waited for any longer, and the same where a driver ends."""

_RETRY_SECONDS = 1.0
"""How long after a failure to ask for the trace of a job it is tried again."""

_PACKAGE = __name__.partition(".")[0]


def is_connecting() -> bool:
    """Whether it is Ray that calls the hook, at the end of connecting; later it is the user."""
    return not _worker().connected


def has_hook() -> bool:
    """Whether the cluster has a hook, whoever's it is. One that does not answer is taken to have one."""
    try:
        return HOOK in _ask(HOOK)
    except Exception as error:  # noqa: BLE001  as above
        failed("asking the cluster for its hook", error)
        return True


def own_hook() -> Callable[[], None] | None:
    """The hook of the cluster, if it answers and its hook is one of this package."""
    try:
        hook_name = _ask(HOOK).get(HOOK, b"").decode("utf-8", "replace")
    except Exception as error:  # noqa: BLE001  as above
        failed("asking the cluster for its hook", error)
        return None
    module, _, name = hook_name.partition(":")
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


class Cluster:
    """What this process knows of the cluster that it is connected to, and what it has told the cluster.

    A process has one of these for all its connections: Ray calls the hook at the first one only.

    Attributes:
        all_traced: Whether every worker has run the hook, as far as :meth:`look` has found out.
    """

    all_traced = False

    def __init__(self) -> None:
        self._called: bytes | None = None
        """The cluster's hook that Ray has called in this process, and that has called us, if it is not ours."""
        self._unanswered: bool | None = None
        """The ``hook_runs`` of a :meth:`look` that the cluster has not answered."""
        self._told: list[bytes] = []
        """The keys in :data:`JOB_TRACES` that this driver has written."""

    def look(self, *, hook_runs: bool) -> None:
        """Find out about the cluster that this process is connected to, by one short call to its head.

        ``hook_runs`` says that Ray is just calling the cluster's hook. Where the head does not answer, calls carry what
        suits a cluster that is not traced everywhere, until :meth:`look_again` has an answer.
        """
        self.all_traced, self._unanswered = False, hook_runs
        try:
            self.look_again()
        except Exception as error:  # noqa: BLE001  a cluster that cannot be asked is one that we know nothing of
            failed("asking the cluster for its hook", error)

    def look_again(self) -> None:
        """Repeat a :meth:`look` that the head has not answered. Raises what Ray raises if there is no answer again."""
        if self._unanswered is None:
            return
        found = _ask(HOOK, SET_LATE)
        hook = found.get(HOOK)
        if self._unanswered:
            self._called = hook
        self.all_traced = hook is not None and hook == self._called and SET_LATE not in found
        self._unanswered = None

    def trust_nothing(self) -> None:
        """Take this cluster for one that is not traced everywhere, whatever its head says."""
        self.all_traced, self._unanswered = False, None

    def publish(self, job_id: str, trace: JobTrace) -> bool:
        """Tell the workers of a job its trace, which they will not ask for again; whether that was possible."""
        try:
            client, key = _worker().gcs_client, job_id.encode()
            self._told.append(key)
            added: int = client.internal_kv_put(key, _JOB_TRACE.pack(*trace), False, JOB_TRACES, _TIMEOUT)
        except Exception as error:  # noqa: BLE001  calls carry their context then
            failed("telling the workers of this job its trace", error)
            return False
        return added == 1

    def published(self, job_id: str) -> JobTrace | None:
        """The trace of a job; None if its driver has told none. Raises what Ray raises where that cannot be asked."""
        found = _worker().gcs_client.internal_kv_get(job_id.encode(), JOB_TRACES, _TIMEOUT)
        return JobTrace(*_JOB_TRACE.unpack(found)) if found is not None else None

    def invite_client(self, job_id: str) -> bool:
        """Tell the client of a job that its server understands it; whether that was possible."""
        try:
            client, key = _worker().gcs_client, client_key(job_id)
            self._told.append(key)
            client.internal_kv_put(key, CLIENT_INVITATION, True, JOB_TRACES, _TIMEOUT)
        except Exception as error:  # noqa: BLE001  the client is traced from its server on
            failed("inviting this client", error)
            return False
        return True

    def told_by_client(self, job_id: str) -> bytes | None:
        """What the client of a job has written in the place of the invitation, which else is still there.

        Raises what Ray raises where that cannot be asked.
        """
        told: bytes | None = _worker().gcs_client.internal_kv_get(client_key(job_id), JOB_TRACES, _TIMEOUT)
        return told

    def withdraw(self, *, cluster_ends: bool) -> None:
        """Remove what this driver has told, now that it ends and nobody asks for it any more."""
        keys = self._told.copy()
        self._told.clear()
        try:
            for key in () if cluster_ends else keys:
                _worker().gcs_client.internal_kv_del(key, False, JOB_TRACES, _TIMEOUT_AT_END)
        except Exception as error:  # a cluster that does not answer has ended, and what it was told with it
            if is_interruption(error):
                raise


class SharedTrace:
    """The trace of this process's job, as far as this process knows it.

    Args:
        cluster: The cluster that the process is connected to.
        process: This process.
        recorder: Its recorder.
        driver_task_id: The task id of this driver; empty in a worker.

    Attributes:
        is_shared: Whether all processes of this job know the trace of its driver's root span, so that calls in it need
            not carry their context.
        published: In a driver that trace, once its workers can know it. In a worker the same if it is not recorded:
            else what it calls has to be told who the caller is.
        inherited: In a worker the trace of its job, to which calls belong that carry nothing; None if there is no such
            trace, or it is not known (:meth:`learn`).
    """

    def __init__(self, cluster: Cluster, process: RayProcess, recorder: Recorder, driver_task_id: bytes) -> None:
        self._cluster = cluster
        self._process = process
        self._recorder = recorder
        self._driver_task_id = driver_task_id
        self.is_shared = cluster.all_traced and not process.is_client
        self.published: JobTrace | None = None
        self.inherited: JobTrace | None = None
        self._has_learned = process.is_driver
        self._is_learning = False
        self._is_closed = False
        self._learning = threading.RLock()

    def publish(self) -> bool:
        """Publish the trace of this driver's root span, if calls can do with that; whether it was."""
        root = self._recorder.fallback
        if root is None or root.trace_state or not self.is_shared:
            return False
        trace = JobTrace(root.trace_id, root.span_id, root.flags, self._driver_task_id)
        if not self._cluster.publish(self._process.job_id, trace):
            return False
        self.published = trace
        return True

    def learn(self, job_id: str, *, task_is_there: bool) -> None:
        """Ask the cluster once for the trace of this worker's job, where Ray waits for the cluster anyway.

        That is when a worker starts that has a job from the beginning, and when Ray loads a function; never between
        a call and its execution. ``task_is_there`` says that a task of the job has come, so that its driver has
        published the trace by now or never will; if the cluster does not answer then, a thread asks again and again.
        """
        with self._learning:  # the methods of a threaded actor may begin at the same time
            if self._has_learned or self._is_learning:
                return
            try:
                self._learn(job_id, task_is_there=task_is_there)
            except Exception as error:  # noqa: BLE001  of Ray's, and it may pass
                failed("asking for the trace of this job", error)
                if task_is_there:
                    self._is_learning = True
                    threading.Thread(
                        target=self._keep_asking, args=(job_id,), name="ray_tracing_hooks-job-trace", daemon=True
                    ).start()

    @property
    def may_inherit(self) -> bool:
        """Whether a call of this process's own job that carries nothing would be taken for one of its driver's."""
        if self._process.is_driver:
            return self.published is not None
        return self.inherited is not None or not self._has_learned

    def close(self) -> None:
        """Ask the cluster no more."""
        self._is_closed = True

    def _learn(self, job_id: str, *, task_is_there: bool) -> None:
        self._cluster.look_again()
        found = self._cluster.published(job_id)
        if found is not None and self._recorder.of(found.flags) is None:
            self.published = found
        self.inherited = found
        self._has_learned = task_is_there or found is not None

    def _keep_asking(self, job_id: str) -> None:
        while not self._is_closed and not self._has_learned:
            time.sleep(_RETRY_SECONDS)
            with contextlib.suppress(Exception):
                self._learn(job_id, task_is_there=True)


def client_key(job_id: str) -> bytes:
    """Where in :data:`JOB_TRACES` a client and its server meet (:mod:`ray_tracing_hooks._ray.client_context`)."""
    return f"{job_id}.client".encode()


def _ask(*keys: bytes) -> dict[bytes, bytes]:
    """What the cluster has of these keys. Raises what Ray raises where it cannot be asked."""
    found: dict[bytes, bytes] = _worker().gcs_client.internal_kv_multi_get(list(keys), NAMESPACE, _TIMEOUT)
    return found


def _worker() -> Any:
    from ray._private.worker import global_worker  # noqa: PLC0415  the hook's module must be importable without Ray

    return global_worker
