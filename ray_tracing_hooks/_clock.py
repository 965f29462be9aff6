"""The clocks of the system, also while the program sees another time.

Tests freeze the time of a program. freezegun replaces the functions of :mod:`time` in every module that refers to one
of them, and time-machine replaces the code that some of them call. Neither changes the functions here, except that
time-machine changes :data:`now_ns` where there is no compiled part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from ray_tracing_hooks import _compiled

now_ns: Callable[[], int] = _compiled.now_ns
"""Nanoseconds since the epoch."""

monotonic: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
"""Seconds that never go back, as ``time.monotonic()`` counts them."""

monotonic_ns: Callable[[], int] = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
"""The same in nanoseconds."""
