"""The hook of this cluster, and whether every worker has run it and so understands the contexts that calls carry.

Ray keeps one hook for a cluster, stores it before the first worker starts, and calls it in each process before the
first task (Ray 2.60 ``_private/node.py``, ``_write_cluster_info_to_kv``; ``_private/worker.py``, end of ``connect()``).
A worker ends if the hook cannot be imported, or raises. So all workers are alike, except if

- the user calls our hook in a cluster whose own hook is another one,
- this process joins such a cluster after a traced one, since Ray does not call its hook a second time,
- the hook was set while the cluster was running, in which case :data:`SET_LATE` is set as well.

Ray's own tracing is switched off here, and kept off.

Ray sets ``_global_is_tracing_enabled`` again at every ``ray.init`` that joins a traced cluster, whether or not it calls
the hook again (Ray 2.60 ``_private/worker.py``, end of ``connect()``; ``util/tracing/tracing_helper.py``,
``_enable_tracing``). The wrapper keeps it off, and reports that the cluster is traced.

Undoing the patches restores this: if our hook was the cluster's, Ray's own tracing is off, as before ``ray.init``; if
the user called it in a cluster with another hook, the previous state.
"""

from __future__ import annotations

import contextlib
import importlib
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ray_tracing_hooks._safety.exceptions import is_interruption
from ray_tracing_hooks._safety.guard import failed, guarded
from ray_tracing_hooks._safety.patching import ABSENT, Patches

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._record.recorder import Recorder


NAMESPACE = b"tracing"
HOOK = b"tracing_startup_hook"
SET_LATE = b"ray_tracing_hooks_set_late"
"""A key beside Ray's own in the cluster's key-value store: some processes have not run the hook."""

CONTROL = b"ray_tracing_hooks_control"
"""A key beside these: what has been set while the cluster was running (:mod:`ray_tracing_hooks._control.control`)."""

JOB_TRACES = b"ray_tracing_hooks"
"""The namespace in which the drivers of a cluster publish the traces of their jobs, by job id."""

CLIENT_INVITATION = b"\x01"

_TIMEOUT, _TIMEOUT_AT_END = 5, 1
"""Seconds to wait for the cluster's head, in general and at the end of a driver."""

_RETRY_SECONDS = 1.0
"""How long to wait after a failure to get the trace of a job before the next attempt."""

_PACKAGE = __name__.partition(".")[0]


def is_connecting() -> bool:
    """Whether Ray is calling the hook, at the end of connecting; later calls are the user's."""
    return not _worker().connected


def has_hook() -> bool:
    """Whether the cluster has a hook, of this package or another. If it does not answer, the result is True."""
    with guarded("reading the hook of the cluster"):
        return HOOK in _ask(HOOK)
    return True


def own_hook() -> Callable[[], None] | None:
    """The hook of the cluster, if the cluster answers and its hook belongs to this package."""
    hook_name = ""
    with guarded("reading the hook of the cluster"):
        hook_name = _ask(HOOK).get(HOOK, b"").decode("utf-8", "replace")
    module, _, name = hook_name.partition(":")
    if module.partition(".")[0] != _PACKAGE:
        return None
    hook: Callable[[], None] = getattr(importlib.import_module(module), name)
    return hook


def named_hook() -> str | None:
    """The hook that the ``ray.init()`` names which is connecting now; None if it names none.

    Ray 2.60 ``_private/worker.py`` ``init()`` drops it where it joins a cluster.
    """
    frame = sys._getframe()  # noqa: SLF001  the public function for this, of inspect, reads source files
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "init" and frame.f_globals.get("__name__") == "ray._private.worker":
            named = frame.f_locals.get("_tracing_startup_hook")
            return named if isinstance(named, str) else None
    return None


class JobTrace(NamedTuple):
    """The trace of a driver's root span, which calls of the driver belong to outside of any other trace."""

    trace_id: bytes
    root_span_id: bytes
    flags: int
    """The flags of the W3C trace context."""
    driver_task_id: bytes


_JOB_TRACE = struct.Struct("<16s8sB24s")


class Cluster:
    """What this process knows about its cluster, and what it has published there.

    A process has one instance for all its connections: Ray calls the hook only at the first one.

    Attributes:
        all_traced: Whether every worker has run the hook, as :meth:`look` has determined.
        control: What has been set while the cluster was running, as :meth:`look` has found it; empty if nothing has.
        hook: The name of its hook, as :meth:`look` has found it; empty if there is none, or it is not known.
    """

    all_traced = False
    control = b""
    hook = ""

    def __init__(self) -> None:
        self._called: bytes | None = None
        """The cluster's hook that Ray has called in this process: ours, or one that has called ours."""
        self._unanswered: bool | None = None
        """The ``hook_runs`` of a :meth:`look` that has not been answered."""
        self._invitations: list[bytes] = []
        """The keys in :data:`JOB_TRACES` that this driver has written for its client."""

    def look(self, *, hook_runs: bool) -> None:
        """Query the cluster that this process is connected to, with one short call to its head.

        ``hook_runs`` says that Ray is calling the cluster's hook right now. If the head does not answer, the cluster is
        treated as not traced everywhere, until :meth:`look_again` gets an answer.
        """
        self.all_traced, self.control, self.hook, self._unanswered = False, b"", "", hook_runs
        with guarded("reading the hook of the cluster"):
            self.look_again()

    def look_again(self) -> None:
        """Repeat a :meth:`look` that the head has not answered. Raises Ray's errors if there is no answer again."""
        if self._unanswered is None:
            return
        found = _ask(HOOK, SET_LATE, CONTROL)
        hook, self.control = found.get(HOOK), found.get(CONTROL, b"")
        self.hook = (hook or b"").decode("utf-8", "replace")
        if self._unanswered:
            self._called = hook
        self.all_traced = hook is not None and hook == self._called and SET_LATE not in found
        self._unanswered = None

    def assume_untraced(self) -> None:
        """Treat this cluster as not traced everywhere, whatever its head says."""
        self.all_traced, self._unanswered = False, None

    def publish(self, job_id: str, trace: JobTrace) -> bool:
        """Publish the trace of a job for its workers, which read it only once; returns whether that succeeded.

        It stays when the driver ends, as does Ray's own entry for the job: detached actors live on, and what they call
        may run in a worker that starts later.
        """
        with guarded("publishing the trace of this job to its workers"):
            client = _worker().gcs_client
            added: int = client.internal_kv_put(job_id.encode(), _JOB_TRACE.pack(*trace), False, JOB_TRACES, _TIMEOUT)
            return added == 1
        return False

    def published(self, job_id: str) -> JobTrace | None:
        """The trace of a job; None if its driver has published none. Raises Ray's errors if there is no answer."""
        found = _worker().gcs_client.internal_kv_get(job_id.encode(), JOB_TRACES, _TIMEOUT)
        return JobTrace(*_JOB_TRACE.unpack(found)) if found is not None else None

    def invite_client(self, job_id: str) -> bool:
        """Tell the client of a job that its server is traced; returns whether that succeeded."""
        with guarded("inviting this client"):
            client, key = _worker().gcs_client, client_key(job_id)
            self._invitations.append(key)
            client.internal_kv_put(key, CLIENT_INVITATION, True, JOB_TRACES, _TIMEOUT)
            return True
        return False

    def announced_by_client(self, job_id: str) -> bytes | None:
        """What the client of a job has written in place of the invitation, else the invitation itself.

        Raises the errors of Ray if the head does not answer.
        """
        value: bytes | None = _worker().gcs_client.internal_kv_get(client_key(job_id), JOB_TRACES, _TIMEOUT)
        return value

    def withdraw(self, *, cluster_ends: bool) -> None:
        """Remove what this driver has written for its client, since it ends."""
        keys = self._invitations.copy()
        self._invitations.clear()
        try:
            for key in () if cluster_ends else keys:
                _worker().gcs_client.internal_kv_del(key, False, JOB_TRACES, _TIMEOUT_AT_END)
        except Exception as error:  # a cluster that does not answer has ended, together with its data
            if is_interruption(error):
                raise


class SharedTrace:
    """The trace of this process's job, as far as known.

    Args:
        driver_task_id: The task id of this driver; empty in a worker.
        carries_submit_time: Whether recorded calls of tasks carry their context in any case: metrics need the time of
            submission of calls that run on another node.

    Attributes:
        is_shared: Whether all processes of this job know the trace of its driver's root span, so that calls in it need
            not carry their context.
        published: That trace, once every process of this job can know it: in a driver when it has been published, in a
            worker when it has been read, unless its calls carry their context in any case.
        inherited: In a worker the trace of its job, for calls that carry no context; None if there is none, or it is
            unknown (:meth:`load_job_trace`).
        link: In a driver, the encoded link of calls that begin a trace, to the span of its submitted job; or empty.
    """

    def __init__(
        self,
        cluster: Cluster,
        process: RayProcess,
        recorder: Recorder,
        driver_task_id: bytes,
        *,
        carries_submit_time: bool = False,
    ) -> None:
        self._cluster = cluster
        self._process = process
        self.recorder = recorder
        self.driver_task_id = driver_task_id
        self._carries_submit_time = carries_submit_time
        self.is_shared = cluster.all_traced and not process.is_client
        self.published: JobTrace | None = None
        self.inherited: JobTrace | None = None
        self.link = b""
        self._has_learned = process.is_driver
        self._is_learning = False
        self._is_closed = False
        self._learning = threading.RLock()

    def publish(self) -> bool:
        """Publish the trace of this driver's root span if that suffices for calls; returns whether it did."""
        root = self.recorder.fallback
        if root is None or root.trace_state or not self.is_shared:
            return False
        trace = JobTrace(root.trace_id, root.span_id, root.flags, self.driver_task_id)
        if not self._cluster.publish(self._process.job_id, trace):
            return False
        self.published = trace
        return True

    def load_job_trace(self, job_id: str, *, task_is_there: bool) -> None:
        """Read the trace of this worker's job from the cluster once, while Ray waits for the cluster anyway.

        That is when a worker starts that has a job from the beginning, and when Ray loads a function; never between a
        call and its execution. ``task_is_there`` says that a task of the job has arrived, so that its driver has
        published the trace by now or never will; if the cluster does not answer then, a thread retries.
        """
        with self._learning:  # methods of a threaded actor may begin at the same time
            if self._has_learned or self._is_learning:
                return
            try:
                self._learn(job_id, task_is_there=task_is_there)
            except Exception as error:  # noqa: BLE001  an error of Ray, which may pass
                failed("reading the trace of this job", error)
                if task_is_there:
                    self._is_learning = True
                    threading.Thread(
                        target=self._keep_asking, args=(job_id,), name="ray_tracing_hooks-job-trace", daemon=True
                    ).start()

    @property
    def may_inherit(self) -> bool:
        """Whether a call within this job that carries no context would be treated as one of its driver."""
        if self._process.is_driver:
            return self.published is not None
        return self.inherited is not None or not self._has_learned

    def close(self) -> None:
        """Stop querying the cluster."""
        self._is_closed = True

    def _learn(self, job_id: str, *, task_is_there: bool) -> None:
        self._cluster.look_again()
        self.inherited = found = self._cluster.published(job_id)
        if found is not None and not (self._carries_submit_time and self.recorder.of(found.flags) is not None):
            self.published = found
        self._has_learned = task_is_there or found is not None

    def _keep_asking(self, job_id: str) -> None:
        while not self._is_closed and not self._has_learned:
            time.sleep(_RETRY_SECONDS)
            with contextlib.suppress(Exception):
                self._learn(job_id, task_is_there=True)


def client_key(job_id: str) -> bytes:
    """The key in :data:`JOB_TRACES` for a client and its server (:mod:`ray_tracing_hooks._ray.client`)."""
    return f"{job_id}.client".encode()


def _ask(*keys: bytes) -> dict[bytes, bytes]:
    """The values of these keys in the cluster. Raises the errors of Ray if the head does not answer."""
    found: dict[bytes, bytes] = _worker().gcs_client.internal_kv_multi_get(list(keys), NAMESPACE, _TIMEOUT)
    return found


def _worker() -> Any:
    from ray._private.worker import global_worker  # noqa: PLC0415  the hook's module must be importable without Ray

    return global_worker


def switch_off_native_tracing(patches: Patches, on_traced_cluster: Callable[[], None]) -> bool:
    """Switch Ray's own tracing off; ``on_traced_cluster`` is called at each later connection to a traced cluster."""
    import ray  # noqa: PLC0415
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    def enable(_original: Callable[..., Any]) -> Callable[..., Any]:
        def _enable_tracing() -> None:
            on_traced_cluster()

        return _enable_tracing

    connecting = is_connecting()
    if connecting:
        # Ray does the same when the hook returns. Removed, so that Ray's next ray.init() calls a hook again.
        patches.set(ray, "__traced__", True, back=ABSENT)
    # Only in versions of Ray that have this switch.
    if hasattr(tracing_helper, "_global_is_tracing_enabled"):
        was_on = tracing_helper._global_is_tracing_enabled  # noqa: SLF001
        patches.set(tracing_helper, "_global_is_tracing_enabled", False, back=was_on and not connecting)
        if connecting:
            # Only Ray's own tracing uses it, and up to Ray 2.55 it is in the pickles of actor classes. If the cluster
            # has another hook, Ray's tracing may be active in other processes and send its context here.
            patches.set(tracing_helper, "_opentelemetry", None, back=None)
    return patches.wrap(tracing_helper, "_enable_tracing", enable)


def has_native_tracing() -> bool:
    """Whether Ray has found that this process's cluster has a tracing hook; Ray sets this just before it calls the
    hook.
    """
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    return bool(getattr(tracing_helper, "_global_is_tracing_enabled", True))
