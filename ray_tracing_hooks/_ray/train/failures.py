"""Why a run, an attempt or a rank failed, and how that ends its span."""

from __future__ import annotations

from typing import Any

from ray_tracing_hooks import names
from ray_tracing_hooks._ray import errors
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import qualified_name

_INNER = ("controller_failure", "health_check_failure", "_base_exc")
"""Where Ray's own errors (``train/v2/api/exceptions.py`` and ``_internal/exceptions.py``) keep what they wrap."""

_MOST_CAUSES = 10


def cause(error: BaseException) -> BaseException:
    """The error of the program or of Ray that Ray Train has wrapped: of several ranks, that of the first one."""
    for _ in range(_MOST_CAUSES):
        if not type(error).__module__.startswith("ray.train"):
            break
        values = vars(error)
        ranks = values.get("worker_failures")
        inner = ranks[min(ranks)] if isinstance(ranks, dict) and ranks else None
        for name in _INNER:
            inner = inner or values.get(name)
        if not isinstance(inner, BaseException) or inner is error:
            break
        error = inner
    return errors.cause(error)


def failed_ranks(error: BaseException) -> list[str]:
    """The ranks that failed, if Ray says so."""
    ranks = vars(error).get("worker_failures")
    return [str(rank) for rank in sorted(ranks)] if isinstance(ranks, dict) else []


def attributes_of(error: BaseException) -> dict[str, Any]:
    """The attributes of an event about this failure."""
    found: dict[str, Any] = {names.ERROR_TYPE: qualified_name(type(cause(error)))}
    if ranks := failed_ranks(error):
        found[names.RAY_TRAIN_FAILED_RANKS] = ranks
    return found


def end(span: RecordedSpan, error: BaseException | None) -> None:
    """End a span with the cause of this error, or without one."""
    if error is not None:
        if ranks := failed_ranks(error):
            span.set_attribute(names.RAY_TRAIN_FAILED_RANKS, ranks)
        errors.fail(span, cause(error))
    span.end()
