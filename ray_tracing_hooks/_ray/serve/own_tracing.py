"""Handles Serve's own tracing (Ray 2.56 and later, ``serve/_private/tracing_utils.py``) if it is switched on.

Its exporter is set up as usual, and gets our spans of each request; Serve's own spans would duplicate them. Its
sampling decision is ignored in favour of the cluster's sampler.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._safety.patching import Patches

_CALLERS = ("ray.serve._private.proxy", "ray.serve._private.replica")
"""The modules that have imported the function by name."""


def patch(patches: Patches) -> bool:
    """Wrap its set-up, if this process has it."""
    from ray.serve._private import tracing_utils  # noqa: PLC0415

    own = vars(tracing_utils).get("setup_tracing")
    if own is None or not hasattr(tracing_utils, "_tracing_enabled"):
        return False
    for name in _CALLERS:
        caller = sys.modules.get(name)
        if caller is not None and vars(caller).get("setup_tracing") is own:
            patches.wrap(caller, "setup_tracing", _setup_tracing(tracing_utils))
    return True


def _setup_tracing(tracing_utils: Any) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    def wrap(original: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(original)
        def setup_tracing(*args: Any, **kwargs: Any) -> bool:
            active = tracing.active
            if active is None:
                return original(*args, **kwargs)
            sampler = active.recorder.sampler
            try:
                return original(*args, **kwargs)
            finally:
                active.recorder.sampler = sampler
                tracing_utils._tracing_enabled = False  # noqa: SLF001

        return setup_tracing

    return wrap
