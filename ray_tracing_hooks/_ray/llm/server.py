"""Requests to a replica of Ray Serve LLM: wraps ``LLMServer._run_request`` and ``_batch_output_stream`` (Ray 2.60
``llm/_internal/serve/core/server/llm_server.py``).

The operation goes to the engine's side in a context variable. A request that the engine refuses is answered with an
item, and not by an exception. The parts of a streamed response pass a batcher, which waits for an interval first
(``llm/_internal/serve/utils/batcher.py``).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import trace

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.generators import watched
from ray_tracing_hooks._ray.llm import content, engine
from ray_tracing_hooks._record.current import REQUEST
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hidden_frame
from ray_tracing_hooks._safety.guard import guarded
from ray_tracing_hooks._safety.patching import Patches

_OPERATIONS = {"completions": "text_completion"}
"""By the engine's method, if it has another name."""

_batched: ContextVar[_First | None] = ContextVar("ray_tracing_hooks_llm_batched", default=None)
"""What the batcher of the current request reads."""

_held = encode.double_attribute(names.RAY_LLM_CHUNK_HELD)
_interval = encode.double_attribute(names.RAY_LLM_BATCHING_INTERVAL)

_SERVERS_FAULT = 500
"""From this status, an error is no fault of the request."""


def patch(patches: Patches) -> bool:
    """Wrap the server; False if this Ray lacks one of the methods."""
    server = sys.modules["ray.llm._internal.serve.core.server.llm_server"].LLMServer
    wrapped = [
        patches.wrap(server, "_run_request", _run_request),
        patches.wrap(server, "_batch_output_stream", _batch_output_stream),
    ]
    return all(wrapped)


def _run_request(original: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    @functools.wraps(original)
    async def run_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None:
            _batched.set(None)
            _note_request(self, request, kwargs.get("engine_method", ""))
        with hidden_frame:
            body = await original(self, request, *args, **kwargs)
        span = REQUEST.get() if tracing.active is not None else None
        return body if type(span) is not RecordedSpan or not hasattr(body, "aclose") else _watched(body, span, self)

    return run_request


@guarded("reading a request to Ray Serve LLM")
def _note_request(server: Any, request: Any, method: str) -> None:
    engine.operation.set(_OPERATIONS.get(method, method))
    # The tasks that an engine begins with its first request keep this context.
    content.messages.set(getattr(request, "messages", None) if content.is_captured() else None)
    client = getattr(server.engine, "_engine_client", None)
    if hasattr(client, "output_processor"):
        engine.note_model(client, server._llm_config.model_id)  # noqa: SLF001  the name that vLLM's own server gets


def _watched(body: AsyncGenerator[Any, None], span: RecordedSpan, server: Any) -> AsyncGenerator[Any, Any]:
    """The same items, or lists of items. With the first one, what it tells is recorded."""
    is_first, batched = True, _batched.get()

    def look(item: Any) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            if batched is not None:
                _note_held(batched.at, span, server)
            _note_error(span, item[0] if isinstance(item, list) and item else item)

    return watched(body, look)


@guarded("recording an error of an LLM engine")
def _note_error(span: RecordedSpan, item: Any) -> None:
    failure = getattr(item, "error", None)
    if failure is None or type(item).__name__ != "ErrorResponse":
        return
    kind, message = str(failure.type), str(failure.message)
    span.set_attribute(names.ERROR_TYPE, kind)
    span.add_event("exception", {names.EXCEPTION_TYPE: kind, names.EXCEPTION_MESSAGE: message})
    if not isinstance(failure.code, int) or failure.code >= _SERVERS_FAULT:
        span.set_status(trace.StatusCode.ERROR, f"{kind}: {message}")


def _batch_output_stream(original: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
    @functools.wraps(original)
    def batch_output_stream(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None and hasattr(generator, "__anext__"):
            generator = _First(generator)
            _batched.set(generator)
        return original(self, generator, *args, **kwargs)

    return batch_output_stream


class _First:
    """An async iterator that notes when its first item is there, and costs the others one call."""

    def __init__(self, body: Any) -> None:
        self._body, self._next = body, body.__anext__
        self.at = 0.0

    def __aiter__(self) -> _First:
        return self

    def __anext__(self) -> Any:
        return self._next() if self.at else self._noted()

    async def _noted(self) -> Any:
        item = await self._next()
        self.at = monotonic()
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)


@guarded("recording how long the first part of a response was held")
def _note_held(since: float, span: RecordedSpan, server: Any) -> None:
    if since:
        interval = server._get_batch_interval_ms() / 1000  # noqa: SLF001  as the batcher gets it
        span.add_encoded(_held(monotonic() - since) + _interval(interval))
