"""A driver: its root span, and how it ends.

Wraps ``Worker.set_mode`` (Ray 2.60 ``_private/worker.py``), which ``ray.shutdown()`` calls with None as its last step,
also at the exit of the interpreter, after Ray's processes have ended.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._libraries import LIBRARIES
from ray_tracing_hooks._ray.propagation import reference, unrecorded_span
from ray_tracing_hooks._ray.templates import INTERNAL
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import Parent
from ray_tracing_hooks._safety.exceptions import is_a, traceback_of
from ray_tracing_hooks._safety.patching import Patches


def patch(patches: Patches, on_begin: Callable[[], None], on_end: Callable[[], None]) -> bool:
    """Call ``on_begin`` when this process begins to disconnect, ``on_end`` when Ray has shut down."""
    from ray._private import worker  # noqa: PLC0415

    def set_mode(original: Callable[..., Any]) -> Callable[..., Any]:
        def set_mode(self: Any, mode: Any) -> Any:
            result = original(self, mode)
            if mode is None:
                on_end()
            return result

        return set_mode

    def disconnect(original: Callable[..., Any]) -> Callable[..., Any]:
        def disconnect(*args: Any, **kwargs: Any) -> Any:
            on_begin()
            return original(*args, **kwargs)

        return disconnect

    return patches.wrap(worker.Worker, "set_mode", set_mode) and patches.wrap(worker, "disconnect", disconnect)


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


def start_root_span(
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


def imported_libraries() -> list[str]:
    """The libraries of Ray that this process has imported."""
    return [library.part for library in LIBRARIES if f"ray.{library.part}" in sys.modules]


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


def notice_sigterm(on_sigterm: Callable[[], None]) -> Callable[[], None]:
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
