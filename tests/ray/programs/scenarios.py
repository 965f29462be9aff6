"""Runs the scenarios of a program, and prints what each came to: its result, its error, its warnings, its output.

A program of scenarios says all that its user could notice. It is run with tracing and without, and must say the same.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import ray

MARK = "RESULT "
# What differs from run to run: ids, addresses, process ids, times, temporary names, and the line at which a thread of
# Ray's waits for a result.
_VARYING = re.compile(
    r"\bpid=\d+|\bip=[0-9.]+|0x[0-9a-f]+|\b[0-9a-f]{32,56}\b|_base\.py\", line \d+|\bsession_[0-9_-]+|127\.0\.0\.1:\d+"
)
_scenarios: dict[str, Callable[[], Any]] = {}


def scenario(function: Callable[[], Any]) -> Callable[[], Any]:
    """Marks a function that needs no arguments as a scenario. What it returns must say all that matters, as JSON."""
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
        [frame.name for frame in traceback.extract_tb(error.__traceback__)],
    ]


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or the description of the error that it raises."""
    try:
        return call()
    except Exception as error:
        return described(error)


def run(**options: Any) -> None:
    """``RTH_ADDRESS`` names the cluster; without it the program starts its own, with the hook of ``RTH_HOOK``.

    ``options`` are for ``ray.init``. ``RTH_ONLY`` runs some scenarios, named with commas between.
    """
    address, hook = os.environ.get("RTH_ADDRESS"), os.environ.get("RTH_HOOK")
    if address:
        options["address"] = address
    else:
        options.update({"num_cpus": 4, "include_dashboard": False, **options})
        if hook:
            options["_tracing_startup_hook"] = hook
    ray.init(log_to_driver=False, **options)
    only = os.environ.get("RTH_ONLY")
    chosen = only.split(",") if only else list(_scenarios)
    print(MARK + json.dumps({name: _outcome(_scenarios[name]) for name in chosen}), flush=True)
    ray.shutdown()


def _outcome(function: Callable[[], Any]) -> dict[str, Any]:
    print(f"{function.__name__} ...", file=sys.stderr, flush=True)  # where a scenario that hangs is seen
    printed = io.StringIO()
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        result = attempt(functools.partial(function))
    return {
        "result": result,
        "stdout": same_in_each_run(printed.getvalue()),
        "warnings": sorted(
            f"{warning.category.__name__}: {same_in_each_run(str(warning.message))}"
            for warning in caught
            if not issubclass(warning.category, ResourceWarning)  # whether garbage was collected yet
        ),
    }
