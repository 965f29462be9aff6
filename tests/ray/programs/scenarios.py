"""Runs the scenarios of a program, and prints what each came to: its result, its error, its warnings, its output.

A program of scenarios says all that its user could notice. It is run with tracing and without, and must say the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import lean
import ray

MARK = "RESULT "
# What differs from run to run: ids, addresses, process ids, times, temporary names, and the line at which a thread of
# Ray's waits for a result.
_VARYING = re.compile(
    r"\bpid=\d+|\bip=[0-9.]+|0x[0-9a-f]+|\b[0-9a-f]{32,56}\b|_base\.py\", line \d+|\bsession_[0-9_-]+|127\.0\.0\.1:\d+"
)
_scenarios: dict[str, Callable[[], Any]] = {}


def scenario(function: Callable[[], Any]) -> Callable[[], Any]:
    """Marks a function that needs no arguments as a scenario. What it returns must say all that matters, as JSON; other
    values are shown by their ``repr``. It must not raise.
    """
    _scenarios[function.__name__] = function
    return function


def same_in_each_run(text: str) -> str:
    """A text without what differs between two runs of the same program."""
    return _VARYING.sub("?", text)


def described(error: BaseException) -> list[Any]:
    """An error as the user can tell it from others: type, bases, text, the cause, the driver's own traceback."""
    return [
        type(error).__name__,
        [base.__name__ for base in type(error).__mro__],
        same_in_each_run(str(error)),
        described(error.__cause__) if error.__cause__ is not None else None,
        # Before Python 3.11 no wrapper of a call can hide.
        [frame.name for frame in traceback.extract_tb(error.__traceback__)] if sys.version_info >= (3, 11) else None,
    ]


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or the description of the error that it raises."""
    try:
        return call()
    except Exception as error:
        return described(error)


def run(**options: Any) -> None:
    """``RTH_ADDRESS`` names the cluster; without it the program starts its own, with the hook of ``RTH_HOOK``.

    ``options`` are for ``ray.init``. ``RTH_ONLY`` runs some scenarios, named with commas between. ``RTH_OUTCOMES`` is a
    file that gets each outcome as it comes, a line each: what is known of a program that does not end.
    """
    address, hook = os.environ.get("RTH_ADDRESS"), os.environ.get("RTH_HOOK")
    if address:
        options["address"] = address
    else:
        options.setdefault("num_cpus", 4)
        if hook:
            options["_tracing_startup_hook"] = hook
    options.setdefault("log_to_driver", False)
    (ray.init if address else lean.start)(**options)
    only, path = os.environ.get("RTH_ONLY"), os.environ.get("RTH_OUTCOMES")
    outcomes = {}
    for name in only.split(",") if only else _scenarios:
        outcomes[name] = _outcome(_scenarios[name])
        if path:
            with open(path, "a") as file:
                file.write(_json({name: outcomes[name]}) + "\n")
    print(MARK + _json(outcomes), flush=True)
    ray.shutdown()


def _json(outcomes: Any) -> str:
    return json.dumps(outcomes, default=lambda value: same_in_each_run(repr(value)))


class _OfThisThread(io.StringIO):
    """Takes what the thread that made it prints. Threads of Ray print when news come."""

    def __init__(self) -> None:
        super().__init__()
        self._thread, self._others = threading.get_ident(), sys.stdout

    def write(self, text: str) -> int:
        return super().write(text) if threading.get_ident() == self._thread else self._others.write(text)


def _outcome(function: Callable[[], Any]) -> dict[str, Any]:
    begun = time.monotonic()
    print(f"{function.__name__} ...", file=sys.stderr, flush=True)  # where a scenario that hangs is seen
    printed, outcome = _OfThisThread(), {}
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            outcome["result"] = function()
        except Exception as error:
            outcome["failed"] = described(error)
    print(f"{function.__name__} took {time.monotonic() - begun:.1f} s", file=sys.stderr, flush=True)
    outcome["stdout"] = same_in_each_run(printed.getvalue())
    outcome["warnings"] = sorted(
        f"{os.path.basename(warning.filename)}: {warning.category.__name__}: {same_in_each_run(str(warning.message))}"
        for warning in caught
        if not issubclass(warning.category, ResourceWarning)  # whether garbage was collected yet
    )
    return outcome
