"""Collects the spans of all nodes when a driver ends, if ``RAY_TRACING_COLLECT_TO`` asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from ray_tracing_hooks._connection.delivery import unmet
from ray_tracing_hooks._safety.guard import logger, report

if TYPE_CHECKING:
    from ray_tracing_hooks._connection.delivery import Delivery
    from ray_tracing_hooks._ray.process import RayProcess
    from ray_tracing_hooks._settings.table import Settings

_OF_JOB = frozenset({"RAY_JOB_CONFIG_JSON_ENV_VAR"})
"""What Ray tells the driver of a submitted job (Ray 2.60 ``_private/runtime_env/constants.py``)."""

_LONGEST = 2e6
"""Seconds, 23 days: the system cannot wait much longer at once."""

_LAST = 2000
"""Characters of the output of a command that fails."""


def collect(process: RayProcess, settings: Settings, delivery: Delivery) -> None:
    """Run ``ray-tracing-hooks collect`` for the cluster that this driver is about to leave, within the time-out.

    In a process of its own: the driver's own connection ends, and what fails or hangs there ends nothing here. Its
    result is logged.
    """
    if problem := unmet(settings, delivery.plan.exporters).get("collect_to"):
        report(problem)
    seconds = settings.collect_timeout
    try:
        done = subprocess.run(  # noqa: S603  the arguments are ours
            [sys.executable, "-m", "ray_tracing_hooks", "collect", "--address", process.gcs_address],
            env=_environment(settings),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=min(seconds, _LONGEST),
            check=False,
        )
    except subprocess.TimeoutExpired:
        report(
            f"not all spans were collected within {seconds:g} s (RAY_TRACING_COLLECT_TIMEOUT): run `ray-tracing-hooks "
            "collect` while the cluster runs"
        )
        return
    for line in done.stdout.splitlines():
        logger.info("ray_tracing_hooks: %s", line)
    if done.returncode:
        report(f"not all spans were collected: {' '.join(done.stderr[-_LAST:].split())}")


def _environment(settings: Settings) -> dict[str, str]:
    """The variables of the command, which finds the same packages as this process."""
    from ray_tracing_hooks._ship.start import environment  # noqa: PLC0415  few programs do so

    # The place is no argument, since it may contain a password, which the list of processes must not show.
    found = {**environment(os.environ), "RAY_TRACING_COLLECT_TO": str(settings.collect_to)}
    # Otherwise the command would be a driver of the same submitted job, with its runtime environment.
    return {name: value for name, value in found.items() if name not in _OF_JOB}
