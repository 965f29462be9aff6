"""Functions that run in another thread than the one that asked for them, in the context of that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._record.current import attach, detach


def in_context(function: Callable[..., Any], context: Context) -> Callable[..., Any]:
    """``function``, with ``context`` attached while it runs. Tracebacks are the same as without."""

    def run(*args: Any, **kwargs: Any) -> Any:
        token = attach(context)
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            detach(token)

    return run
