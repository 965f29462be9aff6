"""The hooks of this package by their names, ``module:attribute``."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib.util import find_spec

from ray_tracing_hooks._settings.table import SINKS

PACKAGE = "ray_tracing_hooks"
BY_SETTINGS = f"{PACKAGE}:setup"
HOOKS = (BY_SETTINGS, *(f"{PACKAGE}.{name}:setup" for name in SINKS if find_spec(f"{PACKAGE}.{name}")))
"""The hook for any exporters, and those of sinks that have one of their own."""

OF_RAY = "ray.util.tracing.setup_local_tmp_tracing:setup_tracing"
"""The hook that Ray comes with."""


def exporters_of(hook: str | None, in_use: Sequence[str] | None = None) -> tuple[str, ...] | None:
    """The exporters that a hook delivers with; None for those of the settings.

    ``in_use`` are those of a process that the hook traces, if there is one: they are right for hooks of others too.
    """
    if in_use is not None:
        return tuple(in_use)
    name = (hook or "").partition(":")[0].removeprefix(f"{PACKAGE}.")
    return (name,) if hook in HOOKS and name in SINKS else None


def is_ours(hook: str) -> bool:
    """Whether the hook belongs to this package, rightly spelled or not."""
    return hook.partition(":")[0].partition(".")[0] == PACKAGE


def closest(hook: str) -> str:
    """The hook of this package that a wrong one resembles most."""
    return next(iter(difflib.get_close_matches(hook, HOOKS, n=1, cutoff=0.0)), BY_SETTINGS)
