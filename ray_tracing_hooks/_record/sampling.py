"""The built-in OpenTelemetry samplers, without the SDK, and the rule for spans that they do not sample.

A call site's span is sampled before anything else happens, and a worker should not import the SDK for that. The
decisions are those of ``opentelemetry.sdk.trace.sampling``; samplers that are not built in are left to the SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span.encode import attribute

_LOW_64_BITS = (1 << 64) - 1


class Sampler(NamedTuple):
    """The two decisions of a sampler."""

    root: Callable[[bytes], bool]
    """Whether to record a new trace with this id."""

    child: Callable[[bool, bytes], bool]
    """Whether to record a span, given whether its parent is sampled and the trace id."""

    is_constant: bool = True
    """Whether the same arguments always give the same decision, so that it can be cached."""

    follows_parent: bool = False
    """Whether a span is recorded if and only if its parent is sampled, so that ``child`` need not be called."""

    @property
    def samples_no_root(self) -> bool:
        """Whether no new trace is ever recorded: not even the one that the smallest ratio takes first."""
        return self.is_constant and not self.root(bytes(16))


class KeepRule(NamedTuple):
    """Which spans of traces that are not sampled are recorded when they end. Each is decided by itself."""

    errors: bool
    """Whether those that failed are."""

    slower_ns: float | None
    """Those that took so many nanoseconds or more are; None for no such limit."""

    def reason(self, duration_ns: int, *, failed: bool) -> bytes:
        """The encoded attribute that says why a span is recorded; empty for a span that is not."""
        if failed and self.errors:
            return FAILED
        return SLOW if self.slower_ns is not None and duration_ns >= self.slower_ns else b""


FAILED, SLOW = (attribute(names.RAY_SAMPLING_REASON, reason) for reason in ("error", "slow"))


def from_environment(environ: Mapping[str, str]) -> Sampler | None:
    """The sampler that ``OTEL_TRACES_SAMPLER`` names, or None for one that needs the SDK.

    Unset and empty mean ``parentbased_always_on``. An invalid ratio means 1.0, as in the SDK.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").strip().lower() or "parentbased_always_on"
    base, parent_based = name.removeprefix("parentbased_"), name.startswith("parentbased_")
    root: Callable[[bytes], bool]
    if base == "always_on":
        root = _always
    elif base == "always_off":
        root = _never
    elif base == "traceidratio":
        root = _ratio(environ.get("OTEL_TRACES_SAMPLER_ARG", ""))
    else:
        return None
    if parent_based:
        return Sampler(root, lambda parent_sampled, _trace_id: parent_sampled, follows_parent=True)
    return Sampler(root, lambda _parent_sampled, trace_id: root(trace_id))


def _always(_trace_id: bytes) -> bool:
    return True


def _never(_trace_id: bytes) -> bool:
    return False


def _ratio(argument: str) -> Callable[[bytes], bool]:
    try:
        ratio = float(argument)
    except ValueError:
        ratio = 1.0
    if not 0.0 <= ratio <= 1.0:
        ratio = 1.0
    bound = round(ratio * (_LOW_64_BITS + 1))
    return lambda trace_id: int.from_bytes(trace_id[8:], "big") < bound
