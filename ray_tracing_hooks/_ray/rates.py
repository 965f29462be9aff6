"""Limits on how many calls a second make spans, for each function or method that this process calls.

Only imported where there are limits. What a call leaves out is counted by its caller and its function, and the count is
told by the next span that can tell it: of the same caller a call of the same function, or the end of the caller itself.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray.propagation import TASK_KEY, Begun
from ray_tracing_hooks._record.recorder import Template

LEFT_OUT = -1

_SECOND = 1_000_000_000

_MOST_CALLERS = 10_000
"""More than these have not ended: what they leave out is not counted for each of them any more."""

_monotonic_ns = time.monotonic_ns

_lock = threading.RLock()
"""One that can be taken again: a signal handler may make calls too."""

# Another thread may hold it when this process is forked. The standard library frees its own locks in this way.
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001  no stub


class RateLimits:
    """The limits of this process, and what they have left out that no span has told yet.

    ``rates`` are patterns on ``module.function`` or ``Class.method`` and how many calls a second may make spans of each
    function that fits; the first that fits counts.
    """

    def __init__(self, rates: Sequence[tuple[str, float]]) -> None:
        self._rates = tuple(rates)
        self._limits: dict[Template, RateLimit | None] = {}
        self.left_out: dict[bytes, dict[RateLimit, int]] = {}

    def of(self, template: Template) -> RateLimit | None:
        """The limit of one call site, if it has one."""
        try:
            return self._limits[template]
        except KeyError:
            function = str(template.attributes[names.RAY_FUNCTION])
            rate = next((rate for pattern, rate in self._rates if fnmatchcase(function, pattern)), None)
            return self._limits.setdefault(template, None if rate is None else RateLimit(self, function, rate))

    def leave_out(self, limit: RateLimit, caller: bytes) -> None:
        """One more call of ``caller`` that makes no span."""
        with _lock:
            if caller not in self.left_out and len(self.left_out) >= _MOST_CALLERS:
                caller = b""
            of_caller = self.left_out.setdefault(caller, {})
            of_caller[limit] = of_caller.get(limit, 0) + 1

    def claim(self, caller: bytes, limit: RateLimit | None = None) -> int:
        """How many calls of ``caller`` were left out and not told: of one call site, or of all. Whoever asks tells."""
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

    def untold(self) -> dict[str, int]:
        """What nobody has told, by function."""
        found: dict[str, int] = {}
        with _lock:
            for caller in list(self.left_out):
                for limit, count in self.left_out.pop(caller).items():
                    found[limit.function] = found.get(limit.function, 0) + count
        return found


class RateLimit:
    """A token bucket: ``rate`` calls a second, and what one second allows, or one call, at once."""

    __slots__ = ("_due", "_interval", "_limits", "_tolerance", "function")

    def __init__(self, limits: RateLimits, function: str, rate: float) -> None:
        self._limits = limits
        self.function = function
        self._interval = int(_SECOND / rate)
        self._tolerance = max(0, _SECOND - self._interval)
        # When a bucket that is used up again and again would have its next token: no tokens have to be counted.
        self._due = 0

    def take(self, caller: bytes) -> int:
        """:data:`LEFT_OUT`, if this call is to make no span; else how many its span has to tell of.

        Without a lock: of calls that several threads make at the very same time, one may be too many.
        """
        now = _monotonic_ns()
        due = max(self._due, now)
        if due - now > self._tolerance:
            self._limits.leave_out(self, caller)
            return LEFT_OUT
        self._due = due + self._interval
        return self._limits.claim(caller, self) if self._limits.left_out else 0


def telling(begin: Callable[..., Begun | None], limits: RateLimits) -> Callable[..., Begun | None]:
    """What begins a task as ``begin`` does; its span says at its end how many of its calls no other span speaks of."""

    def begin_telling(*arguments: Any) -> Begun | None:
        begun = begin(*arguments)
        if begun is not None and begun[1] is not None and isinstance(caller := begun[0].get(TASK_KEY), bytes):
            begun[1].add_at_end(lambda: _attribute(limits.claim(caller)))
        return begun

    return begin_telling


def _attribute(count: int) -> bytes:
    return encode.attribute(names.RAY_LEFT_OUT, count) if count else b""
