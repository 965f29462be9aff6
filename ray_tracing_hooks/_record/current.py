"""Fast access to the current context of ``opentelemetry.context``, for the hot path.

The API's functions call those of a runtime context, which call those of a context variable. If the runtime context is
the API's default, as nearly everywhere, this module uses its variable directly: the one at the time of the import.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as context_api
from opentelemetry import trace
from opentelemetry.context import Context

(SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, Context())
"""The key of the span in a context. Building a context at once takes a third of the time of adding keys one by one."""

REFERENCE_KEY = "ray_tracing_hooks.reference"
"""The key of what a header of SkyWalking said of the remote span in a context. Its value has ``attribute_of(parent)``,
the encoded fields of a span below it, and ``mark(span, parent)``, which adds them to a span of the SDK."""

OF_CALLER = "-of-caller"
"""Ends the name of such a header where it travels with a call in Ray: it names the span around the call, and not that
of the call."""


REQUEST: ContextVar[Any] = ContextVar("the span of the request to a replica", default=None)
"""Web frameworks attach the context that they read from its headers, in which there is no span of this process."""


def _variable() -> ContextVar[Context] | None:
    runtime = getattr(context_api, "_RUNTIME_CONTEXT", None)
    if type(runtime).__module__ != "opentelemetry.context.contextvars_context":
        return None
    variable = getattr(runtime, "_current_context", None)
    return variable if isinstance(variable, ContextVar) else None


def _detach(token: Any) -> None:
    try:  # noqa: SIM105  a context manager would cost more than what it is for
        reset(token)
    except ValueError:
        # A coroutine that ends in another context, such as one being destroyed: there is nothing to restore.
        pass


_current = _variable()
get_current: Callable[[], Context] = context_api.get_current if _current is None else _current.get
attach: Callable[[Context], Any] = context_api.attach if _current is None else _current.set
detach: Callable[[Any], None] = context_api.detach if _current is None else _detach
reset: Callable[[Any], None] = context_api.detach if _current is None else _current.reset
"""``detach`` for code that is certain to run in the same ``contextvars`` context as ``attach``."""
