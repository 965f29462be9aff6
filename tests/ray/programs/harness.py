"""Runs the program of a test: connects to the cluster, prints what the program's ``main`` returns as JSON, shuts
down.

Programs give each actor handle a name, ``(_actor := Actor.remote()).call.remote()``: before Ray 2.48 a method does not
keep its actor alive.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import lean
import ray

MARK = "RESULT "


def until_killed() -> NoReturn:
    """Wait for a signal that ends this process, or whose handler raises. For the main thread."""
    while True:
        signal.pause()


def until_killed_in_thread() -> NoReturn:
    """The same for any thread."""
    threading.Event().wait()
    raise AssertionError("nobody sets it")


def run(main: Callable[[], Any], **options: Any) -> None:
    """``RTH_ADDRESS`` names the cluster; without it the program starts its own, with the hook that ``RTH_HOOK``
    names. ``RTH_WORKING_DIR`` is the ``working_dir`` of its workers.
    """
    if working_dir := os.environ.get("RTH_WORKING_DIR"):
        options["runtime_env"] = {"working_dir": working_dir}
    address = os.environ.get("RTH_ADDRESS")
    if address:
        ray.init(address=address, log_to_driver=False, **options)
    else:
        hook = os.environ.get("RTH_HOOK")
        if hook:
            options["_tracing_startup_hook"] = hook
        lean.start(num_cpus=2, log_to_driver=False, **options)
    result = main()
    print(MARK + json.dumps(result))
    sys.stdout.flush()
    how = os.environ.get("RTH_END", "shutdown")
    if how == "shutdown":
        ray.shutdown()
    elif how == "exit":
        os._exit(0)
