"""Sets up tracing in a process: the entry point of every hook."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks._safety import guard
from ray_tracing_hooks._safety.guard import guarded, report
from ray_tracing_hooks._safety.patching import Patches, in_place

if TYPE_CHECKING:
    from ray_tracing_hooks._connection import Connection
    from ray_tracing_hooks._connection.changes import Changes
    from ray_tracing_hooks._ray.cluster import Cluster
    from ray_tracing_hooks._ray.process import RayProcess


def _is_strict() -> bool:
    """Whether what has failed is raised. Read only then: the settings may not have been read yet."""
    from ray_tracing_hooks._settings import table  # noqa: PLC0415

    return table.load(os.environ, lambda _problem: None).strict


class TracedProcess:
    """The tracing of this process. The only instance is :data:`_here`.

    A process is connected to one cluster at a time, so it has at most one connection.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Threads may call hooks at the same time."""
        self._connection: Connection | None = None
        self._changes: Changes | None = None
        """Follows what is set for the cluster while it runs."""
        self._exporters: tuple[str, ...] | None = None
        """The exporters of the hook."""
        self._cluster: Cluster | None = None
        """Created on first use: nothing of Ray is imported outside the guard."""
        self._patches = Patches()
        """In place from the first call of a hook to :meth:`stop`."""
        self._connection_patches = Patches()
        """In place while this process is connected to a traced cluster."""
        self._until_connected = Patches()
        """In place from a hook that was called too early until this process connects."""

    def start(self, exporters: tuple[str, ...] | None = None) -> None:
        """Trace this process. ``exporters`` are those of the hook, or None for those of the settings.

        Never raises, unless ``RAY_TRACING_STRICT=1``.
        """
        with guarded("setting up tracing", strict=_is_strict), self._lock:
            self._start(exporters)

    def record(self) -> None:
        """Record and deliver the spans that this process makes with OpenTelemetry, without tracing Ray.

        Does nothing if a hook traces this process already. Never raises, unless ``RAY_TRACING_STRICT=1``.
        """
        with guarded("setting up the delivery of spans", strict=_is_strict), self._lock:
            from ray_tracing_hooks._ray import process  # noqa: PLC0415  import Ray only inside the guard

            if self._connection is None and process.mode() in {process.DRIVER, process.WORKER}:
                self._trace(process.describe(), of_ray=False)

    def stop(self) -> None:
        """Stop tracing this process until a hook is called again, and deliver what has been recorded.

        Ray's next ``ray.init()`` calls the hook of its cluster again. A worker still takes the contexts out of calls,
        since its callers may still be traced; our TracerProvider stays where the program has added span processors to
        it.
        """
        with self._lock:
            self._disconnecting()
            self._follow_no_changes()
            connection, self._connection = self._connection, None
            self._connection_patches.undo()
            self._until_connected.undo()
            self._patches.undo()
            # A module that was never imported has nothing to undo.
            for module, undo in (
                ("ray_tracing_hooks._sdk.instrumentors", "uninstrument"),
                ("ray_tracing_hooks._sdk.bridge", "uninstall"),
                ("ray_tracing_hooks._ray.execution", "forget_executors"),
                ("ray_tracing_hooks._ray.driver", "forget_exit"),
            ):
                if module in sys.modules:
                    with guarded("stopping tracing"):
                        getattr(sys.modules[module], undo)()
            if connection is not None:
                with guarded("delivering the spans of this process"):
                    connection.stop()

    def folders(self) -> tuple[str, str | None] | None:
        """The folders with the spans of this process's node: the spool, and the local files' folder if there is one.

        None where nothing is recorded.
        """
        return self._connection.delivery.folders() if self._connection is not None else None

    def connection(self) -> Connection | None:
        """The current traced connection, if any."""
        return self._connection

    def is_called(self) -> bool:
        """Whether a hook has been called in this process, successfully or not."""
        return self._connection is not None or bool(self._patches.targets())

    def patched(self) -> list[tuple[Any, str]]:
        """The attributes that are replaced in this process now, as (owner, name)."""
        return [*self._patches.targets(), *self._connection_patches.targets()]

    def after_fork_in_child(self) -> None:
        """Drop the connection in a forked child: it is not connected to Ray, and its parent ends the open spans.

        Spans of the OpenTelemetry API are still recorded, to a spool file of the child's own.
        """
        connection, self._connection = self._connection, None
        self._changes = None  # its thread is in the parent, and so is whoever holds the lock
        self._lock = threading.RLock()
        if connection is not None:
            connection.disable_after_fork()

    def _start(self, exporters: tuple[str, ...] | None) -> None:
        from ray_tracing_hooks._ray import process  # noqa: PLC0415  import Ray only inside the guard

        if process.moves_objects():
            return  # a process of Ray that only moves objects runs nothing that has a span
        from ray_tracing_hooks._ray import cluster  # noqa: PLC0415

        mode = process.mode()
        if self._connection is not None:
            self._connection.delivery.check_exporters(exporters)
            return
        if mode is None:
            self._exporters = exporters
            self._start_client()
            return
        if not cluster.has_native_tracing() and not cluster.has_hook():
            report(
                "this cluster was started without a tracing hook, so its workers cannot be traced: name the hook where "
                "the cluster is started, in ray start --head --tracing-startup-hook=... or in the ray.init() that "
                "starts it"
            )
            return
        self._exporters = exporters
        # First switch off Ray's own tracing, which breaks programs, so that it is off whatever fails below.
        connections_are_seen = in_place(cluster.switch_off_native_tracing, self._patches, self._reconnected)
        self._connect(mode, hook_runs=cluster.is_connecting())
        # Only now: once connected, a worker does not repeat what another process has reported.
        if not connections_are_seen:
            report("this version of Ray connects in an unknown way: a second ray.init() is not traced")

    def _start_client(self) -> None:
        """Trace this process if it is a Ray Client, or once it becomes one."""
        from ray_tracing_hooks._ray import process  # noqa: PLC0415

        if in_place(process.patch_client, self._patches, self._client_connected):
            if process.connected_worker() is not None:
                self._client_connected()
                return
            if in_place(process.patch_driver, self._until_connected, self._connected_too_late):
                return
        self._say_not_connected()

    def _client_connected(self) -> None:
        """Trace this process, which has connected through Ray Client: Ray calls no hook in it."""
        self._until_connected.undo()
        with guarded("setting up tracing of this client"), self._lock:
            from ray_tracing_hooks._ray import client, process  # noqa: PLC0415

            if self._connection is not None:
                if not self._connection.process.is_client or self._connection.process.worker.is_connected():
                    return  # only one connection of a process is traced at a time
                self._disconnecting()
                self._disconnected()
            worker = process.connected_worker()
            if worker is not None:
                self._trace(client.describe(worker))

    def _connected_too_late(self) -> None:
        """Warn if a driver called the hook before it connected and its cluster does not have the hook."""
        self._until_connected.undo()
        if self._connection is None:
            self._say_not_connected()

    def _say_not_connected(self) -> None:
        report(
            "the hook was called in a process that is not connected to Ray, so there is nothing to trace: name the "
            "hook in ray.init(_tracing_startup_hook='ray_tracing_hooks:setup') or "
            "ray start --tracing-startup-hook=..., and Ray calls it; only a Ray Client (ray://) has to call it itself"
        )

    def _reconnected(self) -> None:
        """Trace this process, which has joined a traced cluster again: Ray does not call a hook a second time."""
        if self._connection is not None:
            return
        with guarded("setting up tracing"):
            from ray_tracing_hooks._ray import cluster, process  # noqa: PLC0415

            hook = cluster.own_hook()
            if hook is not None:
                hook()  # it may be another hook of this package than that of the first cluster
            else:
                self._connect(process.mode(), hook_runs=False)

    def _connect(self, mode: int | None, *, hook_runs: bool) -> None:
        from ray_tracing_hooks._ray import arguments, process  # noqa: PLC0415

        cluster = self._known_cluster()
        # First, so that contexts are taken out of calls whatever fails below: callers send them anyway.
        contexts_travel = in_place(arguments.patch, self._connection_patches, cluster)
        cluster.look(hook_runs=hook_runs)
        if mode == process.DRIVER:
            self._compare_hooks(cluster.hook)
        if not contexts_travel:
            cluster.assume_untraced()  # a call without a context may then come from any caller
        if mode in {process.DRIVER, process.WORKER}:
            self._trace(process.describe())
        if not contexts_travel:
            report(
                "this version of Ray passes arguments in an unknown way: "
                "tasks and actors are traced where they are called, but not where they run"
            )

    def _compare_hooks(self, hook: str) -> None:
        """Report a hook that this driver names for a cluster with another one, which Ray uses without a word."""
        from ray_tracing_hooks._ray.cluster import named_hook  # noqa: PLC0415  as above

        named = named_hook()
        if hook and named and named != hook:
            report(
                f"this cluster was started with the hook {hook}; {named}, which ray.init() names in this program, is "
                "not used"
            )

    def _trace(self, process: RayProcess, *, of_ray: bool = True) -> None:
        from ray_tracing_hooks import _compiled  # noqa: PLC0415
        from ray_tracing_hooks._connection import Configuration, Connection  # noqa: PLC0415
        from ray_tracing_hooks._connection.folders import reporter  # noqa: PLC0415
        from ray_tracing_hooks._connection.instrumentation import Lifetime  # noqa: PLC0415
        from ray_tracing_hooks._settings import table  # noqa: PLC0415

        guard.set_reporter(reporter(process))
        environ: Mapping[str, str] = os.environ
        records, exporters = True, self._exporters
        follows = of_ray and not process.is_client
        if follows and (found := self._known_cluster().control):
            from ray_tracing_hooks._connection import changes  # noqa: PLC0415  set by a command, in few clusters

            with guarded("reading what is set for this cluster"):
                environ, exporters, records = changes.over(os.environ, exporters, found)
        settings = table.load(environ, report, process.start_directory)
        # The variables of exporters are checked where spans are sent.
        if any(name.startswith("OTEL_") and not name.startswith("OTEL_EXPORTER_") for name in os.environ):
            from ray_tracing_hooks._settings import otel  # noqa: PLC0415  most processes have no such variable

            otel.check(os.environ, report)
        guard.set_strict(settings.strict)
        _compiled.use.allow(settings.compiled)
        self._connection = Connection(
            process,
            self._known_cluster(),
            Configuration(settings, environ, exporters, records),
            Lifetime(self._connection_patches, self._patches, self._disconnecting, self._disconnected),
            of_ray=of_ray,
        )
        if follows:
            with guarded("listening for changes of the settings"):
                self._follow_changes(process)

    def _follow_changes(self, process: RayProcess) -> None:
        from ray_tracing_hooks._connection.changes import Changes  # noqa: PLC0415  as above

        self._changes = Changes(process, self._known_cluster().control, self._exporters, self._change)
        self._changes.follow()

    def _change(self, environ: Mapping[str, str], exporters: tuple[str, ...] | None, *, records: bool) -> bool:
        """Trace this process with other settings from now on, or not at all for now; called in a thread of its own.

        Returns whether spans are recorded now, for a process that has disconnected meanwhile ``records``.
        """
        from ray_tracing_hooks._connection import Configuration  # noqa: PLC0415
        from ray_tracing_hooks._settings import table  # noqa: PLC0415

        with self._lock:
            connection = self._connection
            if connection is not None:
                settings = table.load(environ, report, connection.process.start_directory)
                return connection.change(Configuration(settings, environ, exporters, records))
        return records

    def _follow_no_changes(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            changes.end()

    def _disconnecting(self) -> None:
        if self._connection is not None:
            with guarded("ending the trace of this driver"):
                self._connection.end_root_span()

    def _disconnected(self) -> None:
        with self._lock:  # settings may be changing
            connection, self._connection = self._connection, None
            self._follow_no_changes()
            if connection is not None:
                with guarded("delivering the spans of this driver"):
                    connection.close()
            self._connection_patches.undo()

    def _known_cluster(self) -> Cluster:
        if self._cluster is None:
            from ray_tracing_hooks._ray.cluster import Cluster  # noqa: PLC0415  as above

            self._cluster = Cluster()
        return self._cluster


_here = TracedProcess()
"""The state of tracing in this process."""

os.register_at_fork(after_in_child=_here.after_fork_in_child)

start, record, stop = _here.start, _here.record, _here.stop
folders, connection, is_called, patched = _here.folders, _here.connection, _here.is_called, _here.patched
