"""A hook around another one, to measure that. It imports nothing else, since this would count as a cost of the hook."""

import importlib
import os
import sys
import time
from typing import Any

HOOK = "TIMED_HOOK"
"""The variable with the hook to measure."""

taken: dict[str, Any] = {}
"""What it took, in seconds, and the modules that it imported."""


def setup() -> None:
    before, wall, cpu = set(sys.modules), time.perf_counter(), time.thread_time()
    module, _, name = os.environ[HOOK].partition(":")
    getattr(importlib.import_module(module), name)()
    taken["cpu"], taken["wall"] = time.thread_time() - cpu, time.perf_counter() - wall
    taken["modules"] = [module for module in sys.modules if module not in before]


def nothing() -> None:
    """A hook that does nothing."""
