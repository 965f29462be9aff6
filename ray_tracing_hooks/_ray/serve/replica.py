"""Requests in a replica: wraps ``Replica._wrap_request`` (Ray 2.60 ``serve/_private/replica.py``).

It is a context manager around everything that a replica does for one request, streaming included, whether the request
came by an actor call or by gRPC. The span is current while the user's code runs, since Serve starts that from within.

What instruments ASGI applications, as FastAPI itself does in newer versions, looks for its parent in the headers of the
request and nowhere else. So these tell of the replica's span, as they would behind any traced server
(``UserCallableWrapper.call_http_entrypoint``).
"""

from __future__ import annotations

from binascii import hexlify as _hex
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from types import TracebackType
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.execution import fail, submit_time
from ray_tracing_hooks._ray.serve.router import CARRIED
from ray_tracing_hooks._ray.serve.server import only_standard_headers
from ray_tracing_hooks._ray.serve.spans import Templates, of_request, of_status
from ray_tracing_hooks._ray.tracing import (
    CONSUMER,
    TASK_KEY,
    Tracing,
    caller_attribute,
    incoming,
    unrecorded_span,
)
from ray_tracing_hooks._record import ids
from ray_tracing_hooks._record.carrier import decode
from ray_tracing_hooks._record.current import SPAN_KEY, attach, detach, get_current
from ray_tracing_hooks._record.span import Parent, RecordedSpan

MODULE = "ray.serve._private.replica"

_PLACES = ("_wrap_request", "_wrap_user_method_call")
"""The second one before Ray 2.43."""

_templates = Templates(CONSUMER, names.SERVE_REPLICA)


def patch(patches: Patches) -> bool:
    """Wrap what replicas do around requests; False if this Ray has no such place."""
    from ray.serve._private import replica  # noqa: PLC0415

    for cls in (getattr(replica, "Replica", None), getattr(replica, "ReplicaBase", None)):
        for name in _PLACES:
            own = vars(cls).get(name) if cls is not None else None
            if own is not None and not getattr(own, "__isabstractmethod__", False):
                callables = getattr(replica, "UserCallableWrapper", None)
                if callables is not None:
                    patches.wrap(callables, "call_http_entrypoint", _call_http_entrypoint)
                return patches.wrap(cls, name, _wrap_request)
    return False


def _wrap_request(original: Callable[..., AbstractContextManager[Any]]) -> Callable[..., AbstractContextManager[Any]]:
    def wrap_request(self: Any, request_metadata: Any, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        inner = original(self, request_metadata, *args, **kwargs)
        active = tracing.active
        if active is not None and getattr(request_metadata, "is_direct_ingress", False):
            from ray_tracing_hooks._ray.serve import direct  # noqa: PLC0415  it needs what is here

            return direct.around(inner, active, self, request_metadata) or inner
        begun = _begin(active, self, request_metadata) if active is not None else None
        return inner if begun is None else InReplica(inner, *begun)

    return wrap_request


def _call_http_entrypoint(original: Callable[..., Any]) -> Callable[..., Any]:
    def call_http_entrypoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is not None:
            try:
                # The scope of ASGI, wherever this Ray has it.
                for argument in (*args, *kwargs.values()) if kwargs else args:
                    if isinstance(argument, dict) and "headers" in argument:
                        argument["headers"] = with_context(argument["headers"])
                        break
            except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
                failed("telling an application its context", error)
        return original(self, *args, **kwargs)

    return call_http_entrypoint


def with_context(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a request, telling of the span that is current."""
    span = get_current().get(SPAN_KEY)
    if type(span) is RecordedSpan and only_standard_headers():
        traceparent = b"00-%b-%b-%02x" % (_hex(span.trace_id), _hex(span.span_id), span.trace_flags)
        return [*[pair for pair in headers if pair[0] != b"traceparent"], (b"traceparent", traceparent)]
    injected: dict[str, str] = {}
    propagate.inject(injected)
    injected.pop("baggage", None)  # it has not changed
    told = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in injected.items()}
    if any(map(_is_of_b3, told)):
        # Its other form would go before this one.
        headers = [pair for pair in headers if not _is_of_b3(pair[0])]
    return [*[pair for pair in headers if pair[0] not in told], *told.items()]


def _is_of_b3(name: bytes) -> bool:
    return name == b"b3" or name.startswith(b"x-b3-")


def _begin(active: Tracing, replica: Any, metadata: Any) -> tuple[Context, RecordedSpan | None] | None:
    try:
        recorder, carried = active.recorder, getattr(metadata, CARRIED, None)
        here: dict[str, Any] = {}
        task_id = get_current().get(TASK_KEY)
        if task_id is not None:
            here[TASK_KEY] = task_id
        context, parent, first = Context(), None, b""
        if carried is not None:
            told = decode(carried)
            context, parent = incoming(told)
            first = caller_attribute(told.parent_task_id) + submit_time(told.submit_time_ns)
        trace_id, flags = recorder.decide(parent)
        deployment = replica._deployment_id  # noqa: SLF001  as Serve's own tracing
        replica_id = getattr(replica._replica_id, "unique_id", "")  # noqa: SLF001  as above
        template = _templates.of(active, deployment.name, deployment.app_name, metadata.call_method, replica_id)
        recording = recorder.of(flags)
        if recording is None or template is None:
            around = parent or Parent(trace_id, ids.new_span_id(), flags, None, remote=False)
            return Context({**context, SPAN_KEY: unrecorded_span(around), **here}), None
        first += of_request(metadata)
        span = recording.start(template, trace_id, flags, parent, first)
        return Context({**context, SPAN_KEY: span, **here}), span
    except Exception as error:  # noqa: BLE001  the request is the user's, the fault would be ours
        failed("tracing a request in a replica", error)
        return None


class InReplica(AbstractContextManager[Any]):
    """Serve's context manager of a request, with the context of the request attached while it is entered."""

    def __init__(self, inner: AbstractContextManager[Any], context: Context, span: RecordedSpan | None) -> None:
        self._inner, self._context, self._span = inner, context, span
        self._token: Any = None
        self._status: Any = None

    def __enter__(self) -> Any:
        self._token = attach(self._context)
        try:
            told = self._inner.__enter__()
        except BaseException as error:
            self._end(error)
            raise
        return self._noting(told) if callable(told) else told

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return self._inner.__exit__(kind, error, traceback)
        finally:
            self._end(error)

    def _noting(self, told: Callable[..., Any]) -> Callable[..., Any]:
        """Serve's callback for the status of a response, which is noted here too."""

        def status_code_callback(status: Any) -> Any:
            self._status = status
            return told(status)

        return status_code_callback

    def _end(self, error: BaseException | None) -> None:
        detach(self._token)
        span = self._span
        if span is None:
            return
        try:
            self._finish(span, error)
        except Exception as fault:  # noqa: BLE001  as above
            failed("ending the span of a request", fault)

    def _finish(self, span: RecordedSpan, error: BaseException | None) -> None:
        status = 0
        if self._status is not None:
            status, encoded = _outcome(str(self._status))
            span.add_encoded(encoded)
        if error is not None and not isinstance(error, GeneratorExit):
            fail(span, of_user(error))
            return
        if 500 <= status < 600:
            span.set_status(trace.StatusCode.ERROR)
            span.set_attribute(names.ERROR_TYPE, str(status))
        span.end()


@lru_cache(maxsize=1000)
def _outcome(told: str) -> tuple[int, bytes]:
    """The status of a response by HTTP that Serve tells, and the same encoded; 0 and nothing for what is none."""
    status = int(told) if told.isascii() and told.isdigit() else 0
    return status, of_status(status) if status else b""


def of_user(error: BaseException) -> BaseException:
    """The error of the user's code, without what Serve wraps around it where that code has set a code of gRPC."""
    original = getattr(error, "original_exception", None) if type(error).__name__ == "gRPCStatusError" else None
    return original if isinstance(original, BaseException) else error
