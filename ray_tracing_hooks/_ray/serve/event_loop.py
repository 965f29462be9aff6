"""How long a request waited for the event loop of its replica: wraps ``UserCallableWrapper`` (Ray 2.60
``serve/_private/replica.py``).

A replica runs the code of its deployment in an event loop of its own, in another thread than the one that accepts
requests (``RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD``). From when a request is handed to that loop until its code
begins, the loop did not come to it, since other code kept it. Where both share one loop, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches

_LEAST_RECORDED = 0.01
"""Shorter waits, in seconds, are not recorded: a loop that is free takes a fraction of that."""

_HANDED_OVER = "call_user_method", "_call_user_generator", "_call_http_entrypoint"
"""The methods that hand a request to the loop. Each begins there with a call of the same name to ``_BEGUN``."""
_BEGUN = "_raise_if_not_initialized"

_since: ContextVar[float] = ContextVar("ray_tracing_hooks_handed_over", default=0.0)
"""When the request was handed to the loop. What runs there has a copy of the context."""

_loop_wait = encode.double_attribute(names.RAY_SERVE_LOOP_WAIT)


def patch(patches: Patches) -> bool:
    """Wrap both ends of the wait; False if this Ray lacks one of them. Old versions lack both: nothing is recorded."""
    from ray.serve._private import replica  # noqa: PLC0415

    callables = getattr(replica, "UserCallableWrapper", None)
    handed_over = [patches.wrap(callables, name, _hand_over) for name in _HANDED_OVER if hasattr(callables, name)]
    return len(handed_over) < len(_HANDED_OVER) or patches.wrap(callables, _BEGUN, _begun)


def _hand_over(original: Callable[..., Any]) -> Callable[..., Any]:
    def hand_over(self: Any, *args: Any, **kwargs: Any) -> Any:
        if tracing.active is None:
            return original(self, *args, **kwargs)
        token = _since.set(monotonic())
        try:
            return original(self, *args, **kwargs)
        finally:
            _since.reset(token)

    return hand_over


def _begun(original: Callable[..., Any]) -> Callable[..., Any]:
    def begun(self: Any, method_name: str, *args: Any, **kwargs: Any) -> Any:
        if method_name in _HANDED_OVER:
            since = _since.get()
            if since and monotonic() - since >= _LEAST_RECORDED:
                _note(monotonic() - since)
        return original(self, method_name, *args, **kwargs)

    return begun


def _note(waited: float) -> None:
    try:
        span = get_current().get(SPAN_KEY)
        if type(span) is RecordedSpan:
            span.add_encoded(_loop_wait(waited))
    except Exception as error:  # noqa: BLE001  a fault here must not reach the user's request
        failed("recording how long a request waited for the event loop of its replica", error)
