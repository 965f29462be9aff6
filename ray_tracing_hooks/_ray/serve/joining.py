"""Detects that a process takes part in Serve, and wraps the parts of Serve that it has imported.

A process of Serve executes an actor of ``ray.serve._private``, and a process that calls deployments first calls Serve's
controller. Nothing is done in all other processes.

Handles Serve's own tracing (Ray 2.56 and later, ``serve/_private/tracing_utils.py``) if it is switched on.

Its exporter is set up as usual, and gets our spans of each request; Serve's own spans would duplicate them. Its
sampling decision is ignored in favour of the cluster's sampler.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._libraries import SERVE, Wrap
from ray_tracing_hooks._ray import tracing
from ray_tracing_hooks._ray.libraries import instrument
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches


class Joining:
    """Wraps the parts of Serve that this process has imported, for one connection.

    Args:
        patches: Holds the replacements.
        ray_version: The version of Ray, for messages.
    """

    def __init__(self, patches: Patches, ray_version: str) -> None:
        self._patches = patches
        self._ray_version = ray_version
        self._joined: set[Wrap] = set()
        self._lock = threading.RLock()

    def join(self) -> bool:
        """Wrap the parts of Serve that this process has imported by now. Never raises; can be called repeatedly.

        Returns True: from now on, calls among Serve's own actors make no spans and carry no context, since the context
        of a request is carried by the request.
        """
        for row in SERVE.wraps:
            # Serve does not use a module that it has not imported here, and importing it would take a second.
            if row.of not in sys.modules:
                continue
            try:
                with self._lock:
                    if row in self._joined:
                        continue
                    self._joined.add(row)
                    instrument(SERVE.part, row, self._patches, self._ray_version)
            except Exception as error:  # noqa: BLE001  a fault here must not reach the user's program
                failed("joining Serve", error)
        return True


_CALLERS = ("ray.serve._private.proxy", "ray.serve._private.replica")
"""The modules that have imported the function by name."""


def patch_own_tracing(patches: Patches) -> bool:
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
