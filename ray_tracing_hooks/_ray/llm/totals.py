"""What the generations of one call add up to, on the span of its execution: all of them, also those without a span.

A job of ``ray.data.llm`` has millions of generations. ``RAY_TRACING_RATE_LIMIT`` limits how many are spans, by their
names. Times are counted in buckets, eight to each power of two, so a percentile is known to about 5 %.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from opentelemetry import trace
from opentelemetry.context import Context

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import library_spans
from ray_tracing_hooks._ray.propagation import Begun
from ray_tracing_hooks._ray.tracing import Tracing
from ray_tracing_hooks._record.current import SPAN_KEY, get_current
from ray_tracing_hooks._record.recorder import SAMPLED, Template
from ray_tracing_hooks._record.span import RecordedSpan

_EXECUTION = trace.SpanKind.CONSUMER.value + 1

_TOKENS = {
    names.RAY_LLM_TOTAL_INPUT: (names.GEN_AI_INPUT_TOKENS, names.RAY_LLM_INPUT_TOKENS),
    names.RAY_LLM_TOTAL_OUTPUT: (names.GEN_AI_OUTPUT_TOKENS, names.RAY_LLM_OUTPUT_TOKENS),
    names.RAY_LLM_TOTAL_CACHED: (names.GEN_AI_CACHED_TOKENS, names.RAY_LLM_CACHED_TOKENS),
}
_TIMES = {
    names.RAY_LLM_FIRST_BUCKETS: names.GEN_AI_FIRST_CHUNK,
    names.RAY_LLM_QUEUE_BUCKETS: names.GEN_AI_QUEUE_TIME,
}

PER_OCTAVE = 8

_lock = threading.Lock()


class Totals:
    """The sums over the generations of one execution. Generations may end in several threads."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._buckets: dict[str, Counter[int]] = {key: Counter() for key in _TIMES}

    def add(self, attributes: dict[str, Any]) -> None:
        """Add a generation that has ended, given its attributes."""
        with _lock:
            self._sums[names.RAY_LLM_GENERATIONS] += 1
            for key, found in _TOKENS.items():
                self._sums[key] += next((attributes[each] for each in found if attributes.get(each)), 0)
            for key, time in _TIMES.items():
                if attributes.get(time) is not None:
                    self._buckets[key][_bucket(attributes[time])] += 1

    def encoded(self) -> bytes:
        with _lock:
            pairs = {key: sorted(found.items()) for key, found in self._buckets.items() if found}
            flat = {key: [number for pair in found for number in pair] for key, found in pairs.items()}
            return encode.attributes({**self._sums, **flat})


def _bucket(seconds: float) -> int:
    return math.floor(PER_OCTAVE * math.log2(max(1.0, seconds * 1e6)))


_totals: WeakKeyDictionary[RecordedSpan, Totals] = WeakKeyDictionary()
"""By the spans of executions."""


def around() -> Totals | None:
    """The totals of the execution that this code is in; None if the innermost span is another one."""
    span = get_current().get(SPAN_KEY)
    if type(span) is not RecordedSpan or span.template.kind != _EXECUTION:
        return None
    with _lock:
        found = _totals.get(span)
        if found is None:
            found = _totals[span] = Totals()
            span.add_at_end(found.encoded)
        return found


def begin(active: Tracing, name: str, attributes: dict[str, Any], start_time: int | None = None) -> Begun:
    """Begin the span of a generation below the current one, unless the limits leave it out, which the next one that
    they do not leave out reports.
    """
    context = get_current()
    left_out = _left_out(active, name, context)
    if left_out < 0:
        return context, None
    counted = {names.RAY_LEFT_OUT: left_out} if left_out else {}
    return library_spans.begin(active, name, context, attributes | counted, start_time=start_time)


def _left_out(active: Tracing, name: str, context: Context) -> int:
    """What :meth:`~ray_tracing_hooks._ray.rates.RateLimit.take` says of a generation of this name."""
    limits = active.rate_limits
    limit = limits.of(_template(name)) if limits is not None else None
    if limit is None:
        return 0
    recorder = active.recorder
    parent = recorder.parent(context)
    if parent is not None and recorder.sampler.follows_parent and not parent.flags & SAMPLED:
        return 0  # it makes no span in any case, and takes nothing from those that do
    return limit.take(active.calls.caller(context))


@lru_cache(maxsize=100)
def _template(name: str) -> Template:
    return Template(name, _EXECUTION, {names.RAY_FUNCTION: name})


class NoSpan:
    """Stands for the span of a generation that is left out, of which ``is_recording()`` is not true."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments, **_options: None
