"""Rate limits on calls that make spans, for each function or method that this process calls.

Only imported if there are limits. Calls without a span are counted by caller and function, and the next span that can
do so reports the count: that of a call of the same function by the same caller, or that of the caller itself at its
end.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import monotonic_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.propagation import TASK_KEY
from ray_tracing_hooks._ray.templates import MOST_TEMPLATES, matches, plain_name
from ray_tracing_hooks._record.recorder import Template
from ray_tracing_hooks._record.span import RecordedSpan

LEFT_OUT = -1

_SECOND = 1_000_000_000

_MOST_CALLERS = 10_000
"""With more callers than this, calls left out are no longer counted for each of them."""


_lock = threading.RLock()
"""Reentrant, since a signal handler may make calls too."""

# Another thread may hold it when this process forks. The standard library resets its own locks in the same way.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  no stub


class RateLimits:
    """The limits of this process, and the counts of calls left out that no span has reported yet.

    ``rates`` are patterns for ``module.function`` or ``Class.method``, each with the calls per second that may make
    spans for each matching function; the first match applies.
    """

    def __init__(self, rates: Sequence[tuple[str, float]]) -> None:
        self._rates = tuple(rates)
        self._limits: dict[Template, RateLimit | None] = {}
        self.left_out: dict[bytes, dict[RateLimit, int]] = {}

    def of(self, template: Template) -> RateLimit | None:
        """The limit of one call site, or None."""
        try:
            return self._limits[template]
        except KeyError:
            if len(self._limits) >= MOST_TEMPLATES:
                self._limits.clear()
            function = str(template.attributes[names.RAY_FUNCTION])
            attributes = template.attributes
            plain = plain_name(attributes.get(names.RAY_ACTOR_CLASS, ""), attributes.get(names.RAY_ACTOR_METHOD, ""))
            rate = next((rate for pattern, rate in self._rates if matches(pattern, function, plain)), None)
            return self._limits.setdefault(template, None if rate is None else RateLimit(self, function, rate))

    def leave_out(self, limit: RateLimit, caller: bytes) -> None:
        """Count a call by ``caller`` that makes no span."""
        with _lock:
            if caller not in self.left_out and len(self.left_out) >= _MOST_CALLERS:
                caller = b""
            of_caller = self.left_out.setdefault(caller, {})
            of_caller[limit] = of_caller.get(limit, 0) + 1

    def claim(self, caller: bytes, limit: RateLimit | None = None) -> int:
        """Take the unreported count of calls by ``caller``, for one call site or all: the caller reports it."""
        with _lock:
            of_caller = self.left_out.pop(caller, None)
            if of_caller is None:
                return 0
            if limit is None:
                return sum(of_caller.values())
            count = of_caller.pop(limit, 0)
            if of_caller:
                self.left_out[caller] = of_caller
            return count

    def report(self, context: Context, span: RecordedSpan) -> None:
        """At its end, the span of a task reports the calls left out that no other span has reported."""
        if isinstance(caller := context.get(TASK_KEY), bytes):
            span.add_at_end(lambda: encode.attribute(names.RAY_LEFT_OUT, n) if (n := self.claim(caller)) else b"")

    def unreported(self) -> dict[str, int]:
        """Take the unreported counts, by function."""
        found: dict[str, int] = {}
        with _lock:
            for caller in list(self.left_out):
                for limit, count in self.left_out.pop(caller).items():
                    found[limit.function] = found.get(limit.function, 0) + count
        return found


class RateLimit:
    """A token bucket: ``rate`` calls per second, with a burst of one second's calls, or of one call."""

    __slots__ = ("_due", "_interval", "_limits", "_tolerance", "function")

    def __init__(self, limits: RateLimits, function: str, rate: float) -> None:
        self._limits = limits
        self.function = function
        self._interval = int(_SECOND / rate)
        self._tolerance = max(0, _SECOND - self._interval)
        # The time of the next token if the bucket is always used up, so that no tokens have to be counted.
        self._due = 0

    def take(self, caller: bytes) -> int:
        """:data:`LEFT_OUT` if this call is to make no span; otherwise the count that its span has to report.

        Without a lock: of calls that several threads make at the same time, one too many may pass.
        """
        now = monotonic_ns()
        due = max(self._due, now)
        if due - now > self._tolerance:
            self._limits.leave_out(self, caller)
            return LEFT_OUT
        self._due = due + self._interval
        return self._limits.claim(caller, self) if self._limits.left_out else 0
