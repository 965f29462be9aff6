"""The tracing of a process while it is connected to a traced cluster."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import guarded, logger, report
from ray_tracing_hooks._patching import Patches, in_place
from ray_tracing_hooks._private import open_file, open_folder

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

    from ray_tracing_hooks._ray.client_server import Server
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._record.recorder import Recorder
    from ray_tracing_hooks._record.redaction import Redactor
    from ray_tracing_hooks._record.span import RecordedSpan
    from ray_tracing_hooks._settings import Settings
    from ray_tracing_hooks._ship.plan import ShipPlan
    from ray_tracing_hooks._spool.writer import SpoolWriter

_FOLDER = "ray_tracing_hooks"


class Connection:
    """Tracing of this process from ``ray.init`` to ``ray.shutdown``.

    Args:
        process: This process.
        settings: Its settings.
        environ: Its environment variables.
        exporters: Those of the hook, or None for those that the settings name.
        of_ray: Whether Ray itself is traced, or only what OpenTelemetry makes is recorded.
        patches: Where to put what is replaced as long as the connection lasts.
        lasting_patches: The same for what stays in place after it.
        on_disconnecting: Called when this process begins to disconnect from Ray.
        on_disconnected: Called when it has.
    """

    def __init__(
        self,
        process: RayProcess,
        settings: Settings,
        environ: Mapping[str, str],
        *,
        exporters: tuple[str, ...] | None,
        of_ray: bool,
        patches: Patches,
        lasting_patches: Patches,
        on_disconnecting: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        self.process = process
        self.settings = settings
        self._root: Span | None = None
        self._before_root: Context | None = None
        self._client_server: Server | None = None
        self._is_terminated = False
        self._put_sigterm_back: Callable[[], None] = lambda: None
        self._leave_logs: Callable[[], None] = lambda: None
        from ray_tracing_hooks._ship.environment import of_delivery  # noqa: PLC0415
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415

        self._disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        if exporters is None:
            exporters = settings.exporters
        if self._disabled:
            exporters = ()
        self._environ = of_delivery(environ)
        if settings.jaeger_endpoint is not None:
            self._environ["RAY_TRACING_JAEGER_ENDPOINT"] = settings.jaeger_endpoint
        self._flush_left = settings.flush_timeout
        self._plan = self._make_plan(exporters)
        self._spool = self._make_spool() if exporters else None
        self._writer: SpoolWriter | None = None
        self._undecided: SpoolWriter | None = None
        self._recorder: Recorder | None = None
        known = self._make_recorder(environ)
        if of_ray:
            self._instrument(patches, on_disconnecting, on_disconnected)
        self._join_libraries(known, environ, lasting_patches)
        if of_ray and self._spool is not None and process.is_driver and not process.is_internal:
            self._begin_trace_where_it_begins(environ, patches)
        # What fails from here on leaves a connection that records, and delivers at its end.
        if self._spool is not None:
            with guarded("starting delivery"):
                ensure_running(self._spool, self._plan, self._environ)
        if process.is_driver and not process.is_internal:
            with guarded("finding out where spans go"):
                self._say()

    def _make_plan(self, exporters: tuple[str, ...]) -> ShipPlan:
        from ray_tracing_hooks._ship.environment import digest  # noqa: PLC0415
        from ray_tracing_hooks._ship.plan import ShipPlan  # noqa: PLC0415

        process, settings = self.process, self.settings
        if process.is_client:
            log, label = os.path.join(process.session_dir, "client"), f"client-{socket.gethostname()}"
        else:
            log = os.path.join(process.session_dir, "logs", f"{_FOLDER}-{process.node_id[:8]}")
            label = f"{process.session_name.removeprefix('session_')}-{process.node_id[:8]}"
        return ShipPlan(
            exporters=exporters,
            local_dir=settings.local_dir,
            local_file_max_bytes=settings.local_file_max_bytes,
            local_max_bytes=settings.local_max_bytes,
            spool_max_bytes=settings.spool_max_bytes,
            raylet_socket=process.raylet_socket.removeprefix("unix://") or None,
            log_file=f"{log}.log",
            label=label,
            jaeger_protocol=settings.jaeger_protocol,
            console_file=f"{log}-console.out",
            metrics=settings.metrics and bool(exporters),
            environment=digest(self._environ, exporters),
            log_records="otlp" in settings.logs and not {"local", "otlp"}.isdisjoint(exporters),
            keep_errors=settings.keep_errors,
            keep_slower=settings.keep_slower,
            keep_wait=settings.keep_wait,
        )

    def _make_spool(self) -> str | None:
        """The spool folder of this node and plan: processes with other settings have another, and another shipper."""
        plan = json.dumps(self._plan._asdict(), sort_keys=True, default=list)
        name = f"{self.process.node_id[:12] or 'client'}-{hashlib.sha256(plan.encode()).hexdigest()[:8]}"
        ours = _folders(self.process)
        folders = [self.settings.spool_dir, *ours] if self.settings.spool_dir else [*ours]
        for folder, following in zip(folders, [*folders[1:], None], strict=True):
            spool = os.path.join(folder, name)
            # What is ours alone is so from our own folder on. The one that a user names may be shared.
            problem = (make_private_folder(folder) if folder in ours else None) or make_private_folder(spool)
            if problem is None:
                return spool
            report(
                f"the spool folder cannot be used: {problem}; "
                + (f"using {following!r}" if following else "nothing is recorded")
            )
        return None

    def _make_recorder(self, environ: Mapping[str, str]) -> dict[str, Any]:
        """Make what records, and give the attributes of the Resource."""
        from ray_tracing_hooks._record import sampling, wire  # noqa: PLC0415
        from ray_tracing_hooks._record.limits import SpanLimits  # noqa: PLC0415
        from ray_tracing_hooks._record.recorder import Recorder  # noqa: PLC0415
        from ray_tracing_hooks._sdk import resource  # noqa: PLC0415
        from ray_tracing_hooks._spool.layout import UNDECIDED  # noqa: PLC0415
        from ray_tracing_hooks._spool.writer import SpoolWriter, segment_bytes  # noqa: PLC0415

        limits = SpanLimits.from_environment(environ)
        sampler = sampling.from_environment(environ)
        if sampler is None:
            from ray_tracing_hooks._sdk.sampling import from_sdk  # noqa: PLC0415

            sampler = from_sdk()
        known = resource.attributes(self.process.resource_attributes(), environ)
        of_child = resource.of_child(known)
        encoded = wire.resource(known)

        def recorder_of(writer: SpoolWriter) -> Recorder:
            return Recorder(
                writer,
                resource=encoded,
                scope=wire.scope(names.SCOPE, known[names.DISTRO_VERSION]),
                sampler=sampler,
                limits=limits,
            )

        def spool_writer(folder: str, cap: int) -> SpoolWriter:
            return SpoolWriter(
                folder,
                segment_bytes=segment_bytes(cap),
                on_problem=report,
                watch=self._keep_shipped,
                of_child=of_child,
            )

        cap = self.settings.spool_max_bytes
        self._writer = spool_writer(self._spool or os.devnull, cap)
        self._recorder = recorder = recorder_of(self._writer)
        if self._plan.keeps and self._spool is not None:
            # In smaller segments, since what is kept is read again.
            self._undecided = spool_writer(os.path.join(self._spool, UNDECIDED), cap // 16)
            recorder.undecided = recorder_of(self._undecided)
        return known

    def _instrument(
        self, patches: Patches, on_disconnecting: Callable[[], None], on_disconnected: Callable[[], None]
    ) -> None:
        from ray_tracing_hooks._ray import (  # noqa: PLC0415
            actors,
            driver,
            errors,
            execution,
            resources,
            shortcuts,
            signatures,
            tasks,
            tracing,
        )

        assert self._recorder is not None
        parts = self.settings.ray if self._spool is not None else frozenset()
        tracing.active = tracing.Tracing(
            self._recorder,
            self.process,
            parts=parts,
            include=self.settings.include,
            exclude=self.settings.exclude,
            internal=self.settings.internal,
            redactor=_redactor(self.settings),
            rate_limits=self._rate_limits(patches),
            patches=patches,
        )
        places: Iterable[Any] = (
            ("the end of a driver is not noticed", driver.patch, on_disconnecting, on_disconnected),
            ("calls of tasks are not traced", tasks.patch),
            ("calls of actors are not traced", actors.patch),
            ("tasks and actors are not traced where they run", execution.patch),
            ("tracebacks from tasks have lines of this package", errors.patch),
        )
        if self.process.is_client:
            from ray_tracing_hooks._ray import client  # noqa: PLC0415  few processes are one

            places = (("the end of a client is not noticed", client.patch_end, on_disconnecting, on_disconnected),)
        for lost, patch, *callbacks in places:
            if not in_place(patch, patches, *callbacks):
                report(f"{lost}: Ray {self.process.ray_version} has changed the place where that is done")
                if patch in {tasks.patch, actors.patch}:
                    tracing.active.shares_job_trace = False
        if waiting := parts & {"get", "wait", "put"}:
            from ray_tracing_hooks._ray import objects, sizes  # noqa: PLC0415  asked for by few

            if not objects.patch(patches, waiting):
                report(
                    f"not all of {', '.join(sorted(waiting))} make spans: Ray {self.process.ray_version} changed them"
                )
            if not self.process.is_client:
                in_place(partial(sizes.patch, parts=waiting), patches)
        if "get" in parts:
            from ray_tracing_hooks._ray import awaiting  # noqa: PLC0415  as above

            if not in_place(awaiting.patch, patches):
                report(f"await makes no spans: Ray {self.process.ray_version} has changed the place where that is done")
        # Without them calls are slower, and tell less of what tasks hold; no span is lost.
        if not self.process.is_client:
            for patch in (signatures.patch, shortcuts.patch, resources.patch):
                in_place(patch, patches)
            if tracing.HAS_SERVE in sys.modules:
                from ray_tracing_hooks._ray.serve import places as of_serve  # noqa: PLC0415  few drivers have it

                of_serve.join(tracing.active)

    def _join_libraries(self, known: Mapping[str, Any], environ: Mapping[str, str], lasting_patches: Patches) -> None:
        """Record what is made by the API of OpenTelemetry, what instruments libraries, and log records."""
        if self._spool is None:
            return
        from ray_tracing_hooks._record import wire  # noqa: PLC0415
        from ray_tracing_hooks._sdk import bridge  # noqa: PLC0415

        assert self._recorder is not None
        assert self._writer is not None
        bridge.install(self._recorder, self._writer, known, lasting_patches, self._targets, self._undecided)
        if self.settings.instrument:
            from ray_tracing_hooks._sdk import instrumentors  # noqa: PLC0415

            instrumentors.instrument(self.settings.instrument, environ, report)
        if self.settings.logs:
            with guarded("joining logs to traces"):
                self._join_logs(wire.resource(known))

    def _join_logs(self, resource: bytes) -> None:
        from ray_tracing_hooks import _logs  # noqa: PLC0415

        assert self._recorder is not None
        assert self._writer is not None
        parts = self.settings.logs
        if "otlp" in parts and not self._plan.log_records:
            report(
                "log records are not delivered, which RAY_TRACING_LOGS asks for with otlp: the "
                f"exporters local and otlp take them, and these are {', '.join(self._plan.exporters)}"
            )
            parts -= {"otlp"}
        process = _logs.Process(self._recorder, self._writer, resource, lambda: self._root)
        self._leave_logs = _logs.begin(parts, process, least=self.settings.logs_level)

    def _rate_limits(self, patches: Patches) -> RateLimits | None:
        if not self.settings.rate_limit:
            return None
        from ray_tracing_hooks._ray import rates  # noqa: PLC0415  asked for by few

        limits = rates.RateLimits(self.settings.rate_limit)
        rates.patch(patches, limits)
        return limits

    def _targets(self) -> frozenset[str]:
        from ray_tracing_hooks._ship.destinations import otlp_targets  # noqa: PLC0415  needed by few programs

        return otlp_targets(self._plan, self._environ)

    def _begin_trace_where_it_begins(self, environ: Mapping[str, str], patches: Patches) -> None:
        """In the driver itself; of a Ray Client and its server, both drivers of one job, in the client if that can."""
        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415
        from ray_tracing_hooks._ray.process import serves_client  # noqa: PLC0415

        assert tracing.active is not None
        if serves_client():
            from ray_tracing_hooks._ray import client_server  # noqa: PLC0415  as above

            self._client_server = client_server.Server(tracing.active, partial(self._begin_trace, environ))
            self._client_server.serve(patches)
            return
        self._begin_trace(environ)
        if self.process.is_client:
            from ray_tracing_hooks._ray import client  # noqa: PLC0415  as above

            with guarded("asking the cluster whether it is traced"):
                if client.meet_server(tracing.active) and not in_place(client.patch_calls, patches):
                    report(
                        f"calls are not in the trace of this client: Ray {self.process.ray_version} has changed them"
                    )

    def _begin_trace(self, environ: Mapping[str, str], since: int | None = None) -> None:
        """Begin the span of this driver, below the one that its environment tells of.

        With ``since``, in nanoseconds since the epoch, it began then, and not in the thread that this is called in.
        """
        from opentelemetry import context, trace  # noqa: PLC0415

        from ray_tracing_hooks._ray import driver, tracing  # noqa: PLC0415
        from ray_tracing_hooks._ray.environment import describe, incoming  # noqa: PLC0415

        assert tracing.active is not None
        self._before_root = current = context.get_current()
        around = incoming(environ, current)
        if self.settings.root_span:
            self._put_sigterm_back = driver.notice_sigterm(self._sigterm)
            program = sys.argv[0]
            told = describe(environ, program, self.process.namespace)
            self._root = tracing.active.start_root_span(os.path.basename(program) or "python", around, told, since)
            tracing.active.publish_job_trace()
            around = trace.set_span_in_context(self._root, around)
        elif around is not current:
            tracing.active.recorder.fallback = tracing.active.recorder.parent(around)
        # In this thread for the spans of the API; Ray's calls find it from every thread.
        if around is not current and since is None:
            context.attach(around)

    def end_root_span(self) -> None:
        """End the span of this driver; its error is an uncaught exception or SIGTERM, if that ends the interpreter."""
        from opentelemetry import context, trace  # noqa: PLC0415

        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415
        from ray_tracing_hooks._ray.driver import exit_code  # noqa: PLC0415
        from ray_tracing_hooks._record.span import RecordedSpan  # noqa: PLC0415

        if self._client_server is not None:
            self._client_server.decide()
        root, self._root = self._root, None
        if tracing.active is not None and tracing.active.rate_limits is not None:
            caller = tracing.active.caller(context.Context())
            self._tell_left_out(tracing.active.rate_limits, caller, root if isinstance(root, RecordedSpan) else None)
        if root is None:
            return
        error = getattr(sys, "last_value", None)
        if isinstance(error, (Exception, KeyboardInterrupt)) and isinstance(root, RecordedSpan):
            root.fail(error, error.__traceback__)
            if (code := exit_code(error)) is not None:
                root.set_attribute(names.EXIT_CODE, code)
        elif self._is_terminated:
            root.set_status(trace.StatusCode.ERROR, "driver died: SIGTERM")
            root.set_attribute(names.ERROR_TYPE, names.DRIVER_DIED)
        root.end()
        if tracing.active is not None:
            tracing.active.recorder.fallback = None
        if trace.get_current_span() is root and self._before_root is not None:
            context.attach(self._before_root)

    def _tell_left_out(self, limits: RateLimits, caller: bytes, root: RecordedSpan | None) -> None:
        """Tell of the calls that were left out and that no span has told of."""
        if root is not None and (rest := limits.claim(caller)):
            root.set_attribute(names.RAY_LEFT_OUT, rest)
        if self.process.is_driver and (untold := limits.untold()):
            functions = ", ".join(f"{function} {number:,}" for function, number in sorted(untold.items()))
            logger.info("ray_tracing_hooks: calls without spans (RAY_TRACING_RATE_LIMIT): %s", functions)

    def _sigterm(self) -> None:
        self._is_terminated = True

    def _keep_shipped(self) -> None:
        """Replace a shipper that was killed, and tell the user what it has to say."""
        from ray_tracing_hooks._ship.flush import news  # noqa: PLC0415
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415

        if self._spool is not None:
            with guarded("looking after the shipper"):
                ensure_running(self._spool, self._plan, self._environ, patient=True)
                for text in news(self._spool):
                    report(text)

    def _say(self) -> None:
        """Tell the user where spans go, and what is wrong with that."""
        if self._disabled:
            logger.info("ray_tracing_hooks: tracing is off (OTEL_SDK_DISABLED)")
        if self._spool is None:
            return
        from ray_tracing_hooks._ship.destinations import destinations  # noqa: PLC0415  workers need not know

        places, problems = destinations(self._plan, self._environ)
        for problem in problems:
            report(problem)
        what = "spans and log records" if self._plan.log_records else "spans"
        if places:
            logger.info("ray_tracing_hooks: tracing is on, %s go to %s", what, ", ".join(places))
        else:
            logger.info("ray_tracing_hooks: tracing is on, spans wait in %s until they can be delivered", self._spool)

    def check_exporters(self, exporters: tuple[str, ...] | None) -> None:
        """Say that another hook than the one that traces this process changes nothing."""
        wanted = self.settings.exporters if exporters is None else exporters
        if wanted != self._plan.exporters and not self._disabled:
            report(
                f"this process is traced already, with the exporters {', '.join(self._plan.exporters) or 'none'}; "
                f"a second hook, with {', '.join(wanted) or 'none'}, changes nothing: name several exporters in "
                "RAY_TRACING_EXPORTERS for ray_tracing_hooks:setup"
            )

    def places(self) -> tuple[str, str | None] | None:
        """The folder of all spools of this node, and that of the local files if there are any; None without a spool."""
        if self._spool is None:
            return None
        return os.path.dirname(self._spool), self._plan.local_dir if "local" in self._plan.exporters else None

    def stop(self) -> None:
        """Stop recording, and in a driver wait until what has been recorded is delivered."""
        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415

        tracing.active = None
        self._put_sigterm_back()
        self._leave_logs()
        if self._spool is None:
            return
        self._close_writers()
        if self.process.is_driver:
            self._flush(until_writers_end=False)

    def leave_to_parent(self) -> None:
        """For a forked child, which has none of this connection but the place where its own spans go."""
        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415

        tracing.active = None
        if self._recorder is not None:
            self._recorder.leave_to_parent()

    def close(self) -> None:
        """Stop tracing Ray, and in a driver wait until this node's spans have been delivered.

        Spans of the API go on being recorded: a user's span may end after ``ray.shutdown()``.
        """
        from ray_tracing_hooks._ray import tracing  # noqa: PLC0415

        tracing.active = None
        self._put_sigterm_back()
        self._leave_logs()
        if self._spool is None:
            return
        self._close_writers()
        if self.process.is_driver:
            self._flush(until_writers_end=self.process.owns_cluster)
            atexit.register(self._flush_late_spans)

    def _flush_late_spans(self) -> None:
        assert self._spool is not None
        if self._close_writers():
            with guarded("delivering the last spans of this driver"):
                self._flush(until_writers_end=False)
        # The shipper leaves the folder to a process that may still write into it.
        for folder in reversed(self._folders_of_spool()):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def _close_writers(self) -> bool:
        """Let go of the spool; whether there was something to let go of."""
        writers = [writer for writer in (self._writer, self._undecided) if writer is not None]
        was_open = any(writer.is_open for writer in writers)
        for writer in writers:
            writer.close()
        return was_open

    def _folders_of_spool(self) -> list[str]:
        assert self._spool is not None
        return [self._spool] + ([self._undecided.directory] if self._undecided is not None else [])

    def _flush(self, *, until_writers_end: bool) -> None:
        """Wait for delivery. All flushes of a connection together take no longer than the setting allows."""
        from ray_tracing_hooks._ship.flush import flush  # noqa: PLC0415
        from ray_tracing_hooks._ship.start import ensure_running  # noqa: PLC0415
        from ray_tracing_hooks._spool.reader import segments  # noqa: PLC0415

        assert self._spool is not None
        folders = self._folders_of_spool()

        def is_empty() -> bool:
            return not any(map(segments, folders))

        deadline = time.monotonic() + self._flush_left
        if self._flush_left <= 0 or is_empty():
            return
        ensure_running(self._spool, self._plan, self._environ)
        result = flush(self._spool, self._flush_left, until_writers_end=until_writers_end)
        if not result.running and not is_empty():
            # The one that ran was about to end; another takes its place.
            ensure_running(self._spool, self._plan, self._environ)
            result = flush(self._spool, max(0.0, deadline - time.monotonic()), until_writers_end=until_writers_end)
        self._flush_left = deadline - time.monotonic()
        if not result.running and is_empty():
            return
        for text in (*result.problems, *result.waiting):
            report(text)
        if not result.done and not result.problems and not result.waiting:
            timeout = self.settings.flush_timeout
            report(f"not all spans were delivered within {timeout:g} s (RAY_TRACING_FLUSH_TIMEOUT); delivery goes on")


def reporter(process: RayProcess) -> Callable[[str], None]:
    """In a driver: a warning. In a worker: a warning that no other process of the node has given, since Ray shows the
    log of every worker in the driver.
    """

    def tell(message: str) -> None:
        mark = "said-" + hashlib.sha256(message.encode("utf-8", "replace")).hexdigest()[:16]
        # Where a client runs there is no session in which others have said it.
        if process.is_client or _is_first(mark, process.session_dir) or process.is_driver:
            logger.warning("ray_tracing_hooks: %s", message)

    return tell


def _is_first(mark: str, session_dir: str) -> bool:
    """Make a file of this name, unless there is one. Where that cannot be known: better said twice than not at all."""
    for path in _session_folders(session_dir):
        with contextlib.suppress(OSError):
            folder = open_folder(path)
            try:
                os.close(open_file(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=folder))
            except FileExistsError:
                return False
            finally:
                os.close(folder)
            return True
    return True


def _redactor(settings: Settings) -> Redactor | None:
    if not settings.arguments:
        return None
    from ray_tracing_hooks._record.redaction import Redactor  # noqa: PLC0415  asked for by few

    return Redactor(settings.redact)


def _folders(process: RayProcess) -> tuple[str, ...]:
    """The folders of this user's files, the next one to be used where one cannot be."""
    return (process.session_dir,) if process.is_client else _session_folders(process.session_dir)


def _session_folders(session_dir: str) -> tuple[str, str]:
    """The folder of this user's files in a Ray session, and the one to use where that is somebody else's.

    Ray lets every user write to its session, and join the cluster of another one.
    """
    folder = os.path.join(session_dir, _FOLDER)
    return folder, f"{folder}-{os.geteuid()}"


def make_private_folder(path: str) -> str | None:
    """Make a folder that only this user can enter; what is wrong with it, or None.

    Spool files are read and sent on, so nobody else may be able to put one there.
    """
    try:
        os.close(open_folder(path))
    except OSError as error:
        return f"{path!r}: {error.strerror}"
    return None
