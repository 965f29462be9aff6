"""The trace of a driver: its root span, the context around it, and how it ends."""

from __future__ import annotations

import atexit
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._ray.jobs import describe_driver, from_driver_environment, is_of_job_alone
from ray_tracing_hooks._ray.process import RayProcess, serves_client
from ray_tracing_hooks._ray.propagation import reference, unrecorded_span
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.current import SPAN_KEY
from ray_tracing_hooks._record.recorder import Template, add_former_root, is_former_root
from ray_tracing_hooks._record.span import Parent, RecordedSpan
from ray_tracing_hooks._safety.exceptions import is_a, traceback_of
from ray_tracing_hooks._safety.guard import guarded, logger, report
from ray_tracing_hooks._safety.patching import Patches, in_place

if TYPE_CHECKING:
    from ray_tracing_hooks._ray.client import ClientServer
    from ray_tracing_hooks._ray.rates import RateLimits
    from ray_tracing_hooks._settings.table import Settings


_MAY_BE_OPEN = ("objects", *(f"{library.part}.{module}" for library in LIBRARIES for module in library.may_be_open))
"""The modules of the instrumentation that may have open spans at the end of a driver, if they have been imported."""

_exit_began: list[int] = []
"""When the interpreter began to exit, once it does: Ray then sleeps for half a second before it disconnects."""


@functools.cache
def notice_exit() -> None:
    """Note when the interpreter begins to exit: in a handler that runs before that of Ray, which is registered earlier.

    Python keeps room for each handler that was ever registered, so there is one for all connections.
    """
    atexit.register(_begin_exit)


def forget_exit() -> None:
    atexit.unregister(_begin_exit)
    notice_exit.cache_clear()


def _begin_exit() -> None:
    _exit_began.append(now_ns())


class DriverTrace:
    """The trace of this driver.

    Attributes:
        root: The root span, until it ends.
        put_sigterm_back: Restores Ray's SIGTERM handler, which this class wraps.
    """

    def __init__(self, tracing: Tracing, cluster: Cluster, settings: Settings) -> None:
        self._tracing = tracing
        self._cluster = cluster
        self._process: RayProcess = tracing.process
        self._settings = settings
        self.root: Span | None = None
        self.put_sigterm_back: Callable[[], None] = lambda: None
        self._before_root: Context | None = None
        self._client_server: ClientServer | None = None
        self._is_terminated = self._has_ended = False

    def begin_where_it_begins(self, environ: Mapping[str, str], patches: Patches) -> None:
        """Begin the root span in the driver itself; for a Ray Client and its server, in the client if it can."""
        if serves_client():
            from ray_tracing_hooks._ray import client  # noqa: PLC0415  few drivers have clients

            self._client_server = client.ClientServer(
                self._tracing, self._cluster, functools.partial(self._begin, environ)
            )
            self._client_server.serve(patches)
            return
        self._begin(environ)
        if self._process.is_client:
            from ray_tracing_hooks._ray import client  # noqa: PLC0415  as above

            with guarded("asking the cluster whether it is traced"):
                if client.meet_server(self._tracing) and not in_place(client.patch_calls, patches):
                    report(
                        f"calls are not in the trace of this client: Ray {self._process.ray_version} has changed the "
                        "code that this package wraps"
                    )

    def _begin(self, environ: Mapping[str, str], since: int | None = None) -> None:
        """Begin the root span of this driver, below the span that its environment names.

        Without root spans, calls are below that span; those of a submitted job that nobody has passed a trace to begin
        traces of their own, with a link to the job's span.

        ``since`` is an earlier start, in nanoseconds since the epoch; the span is then not made current in this thread.
        """
        current = context.get_current()
        if is_former_root(current.get(SPAN_KEY)):
            current = context.Context({key: value for key, value in current.items() if key != SPAN_KEY})
        self._before_root = current
        around = from_driver_environment(environ, current)
        if self._settings.root_span:
            self.put_sigterm_back = _notice_sigterm(self._sigterm)
            notice_exit()
            attributes = describe_driver(environ, sys.argv[0], self._process.namespace)
            self.root = _start_root_span(self._tracing, program(environ), around, attributes, since)
            self._tracing.calls.publish_job_trace()
            around = trace.set_span_in_context(self.root, around)
        elif around is not current and is_of_job_alone(environ):
            if (job := self._tracing.recorder.parent(around)) is not None:
                self._tracing.job.link = encode.link(job.trace_id, job.span_id, "", None, remote=True)
            around = context.Context({key: value for key, value in around.items() if key != SPAN_KEY})
        elif around is not current:
            self._tracing.recorder.fallback = self._tracing.recorder.parent(around)
        # Attached in this thread for spans of the API; Ray's calls find the root span from every thread.
        if around is not current and since is None:
            context.attach(around)

    def change(self, tracing: Tracing) -> None:
        """Continue with this instrumentation. A root span that is open ends as it began."""
        self._tracing = tracing

    def begin_late(self, environ: Mapping[str, str]) -> None:
        """Begin the root span of a driver in which nothing was recorded so far.

        It is the parent of Ray's calls. Calls carry their context: workers may know already that this job has no trace.
        """
        if self.root is None and self._before_root is None and not self._has_ended and not serves_client():
            self._tracing.job.is_shared = False
            self._begin(environ, now_ns())
            if self._has_ended:
                self.end()  # the driver has ended in another thread meanwhile

    def end(self) -> None:
        """End the root span of this driver; an uncaught exception or SIGTERM that ends the interpreter is its error."""
        self._has_ended = True
        if self._client_server is not None:
            self._client_server.decide()
        root, self.root = self.root, None
        limits = self._tracing.rate_limits
        if limits is not None:
            recorded_root = root if isinstance(root, RecordedSpan) else None
            self._report_left_out(limits, self._tracing.driver_task_id, recorded_root)
        for name in _MAY_BE_OPEN:
            if module := sys.modules.get(f"ray_tracing_hooks._ray.{name}"):
                module.give_up()
        if root is None:
            return
        error = fatal_error()
        if error is not None and isinstance(root, RecordedSpan):
            root.fail(error, traceback_of(error))
            if (code := exit_code(error)) is not None:
                root.set_attribute(names.EXIT_CODE, code)
        elif self._is_terminated:
            root.set_status(trace.StatusCode.ERROR, "driver died: SIGTERM")
            root.set_attribute(names.ERROR_TYPE, names.DRIVER_DIED)
        libraries = [library.part for library in LIBRARIES if f"ray.{library.part}" in sys.modules]
        if isinstance(root, RecordedSpan) and libraries:
            root.set_attribute(names.RAY_LIBRARIES, libraries)
        root.end(_exit_began[0] if _exit_began else None)
        self._tracing.recorder.fallback = None
        add_former_root(root)
        if trace.get_current_span() is root and self._before_root is not None:
            context.attach(self._before_root)

    def _report_left_out(self, limits: RateLimits, caller: bytes, root: RecordedSpan | None) -> None:
        """Report the calls without spans that no span has counted yet."""
        if root is not None and (rest := limits.claim(caller)):
            root.set_attribute(names.RAY_LEFT_OUT, rest)
        if self._process.is_driver and (unreported := limits.unreported()):
            functions = ", ".join(f"{function} {number:,}" for function, number in sorted(unreported.items()))
            logger.info("ray_tracing_hooks: calls without spans (RAY_TRACING_RATE_LIMIT): %s", functions)

    def _sigterm(self) -> None:
        self._is_terminated = True


def program(environ: Mapping[str, str]) -> str:
    """The name of this program: that of its file, of the module that ``python -m`` runs, or of the notebook."""
    started, main = sys.argv[0], sys.modules.get("__main__")
    name = os.path.basename(started)
    if name.endswith("kernel_launcher.py"):
        # VS Code sets the first, Jupyter's server the second.
        notebook = getattr(main, "__vsc_ipynb_file__", None) or environ.get("JPY_SESSION_NAME")
        return os.path.basename(str(notebook or "")) or "notebook"
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.origin == started:  # profilers and debuggers say that they are the program they run
        name = str(spec.name).removesuffix(".__main__")
    return name or "python"


def _start_root_span(
    active: Tracing,
    program: str,
    context: Context,
    attributes: Mapping[str, str] | None = None,
    start_time: int | None = None,
) -> trace.Span:
    """Begin the root span of this driver, the parent of all spans without another one; now, or at an earlier time."""
    recorder = active.recorder
    parent = recorder.parent(context)
    trace_id, flags = recorder.decide(parent)
    recording = recorder.of(flags)
    if recording is None:
        # Not recorded, but propagated: spans in this driver are not sampled either.
        state = parent.trace_state if parent is not None else None
        recorder.fallback = Parent(trace_id, ids.new_span_id(), flags, state, remote=False)
        return unrecorded_span(recorder.fallback)
    where = {**active.process_attributes.attributes(), names.RAY_TASK_ID: active.driver_task_id.hex()}
    template = Template(names.driver_name(program), INTERNAL, {**where, **(attributes or {})})
    span = recording.start(template, trace_id, flags, parent, reference(context, parent), start_time)
    recorder.fallback = Parent(trace_id, span.span_id, flags, span.trace_state, remote=False)
    return span


def fatal_error() -> BaseException | None:
    """The exception that ends the interpreter; None if it continues, or ends without one.

    Python keeps the last uncaught exception, but so do notebooks, test runners and interactive consoles, which
    continue. The one that ends the interpreter has left the program itself: its traceback begins with the frame that
    Python runs as the program, which has no caller.
    """
    if sys.flags.interactive or hasattr(sys, "ps1"):
        return None  # an interactive session continues after an error
    # The older name is deprecated from Python 3.12 on.
    error: Any = sys.last_exc if hasattr(sys, "last_exc") else getattr(sys, "last_value", None)
    traceback = traceback_of(error) if is_a(error, BaseException) else None
    if traceback is None or traceback.tb_frame.f_back is not None:
        return None
    begun = traceback.tb_frame
    place = begun.f_globals.get("__name__"), begun.f_code.co_name
    return error if place in {("__main__", "<module>"), ("runpy", "_run_module_as_main")} else None


def exit_code(fatal: BaseException) -> int | None:
    """The exit code for an exception that ends the interpreter; None if it depends on the platform.

    The argument of ``sys.exit()`` is not available.
    """
    return None if is_a(fatal, KeyboardInterrupt) else 1


def _notice_sigterm(on_sigterm: Callable[[], None]) -> Callable[[], None]:
    """Call ``on_sigterm`` before Ray's own SIGTERM handler ends this driver; returns a function that restores that one.

    The handler raises SystemExit, which leaves no trace once the interpreter exits. ``ray.init`` sets it (Ray
    2.60 ``_private/worker.py``) before it calls the hook. A handler of the user is left alone.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if not callable(handler) or getattr(handler, "__module__", None) != "ray._private.worker":
        return lambda: None

    @functools.wraps(handler)
    def sigterm_handler(*args: Any) -> Any:
        on_sigterm()
        return handler(*args)

    def put_back() -> None:
        if signal.getsignal(signal.SIGTERM) is sigterm_handler:
            _set_handler(handler)

    return put_back if _set_handler(sigterm_handler) else lambda: None


def _set_handler(handler: Callable[..., Any]) -> bool:
    try:
        signal.signal(signal.SIGTERM, handler)
    except ValueError:  # only allowed in the main thread
        return False
    return True
