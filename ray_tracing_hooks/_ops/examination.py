"""Examines a node, or this machine, with the package that is installed there.

It runs in a process of its own, ``python -m ray_tracing_hooks._ops.examination``, with the environment of a shipper: it
finds what a shipper would find, and no network client is imported into a worker. It reads a request from standard input
and writes its result to standard output, both as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ray_tracing_hooks._connection.delivery import is_disabled
from ray_tracing_hooks._connection.folders import session_folders
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._ops.effective import Effective, effective, misspelled, severity
from ray_tracing_hooks._ops.hooks import exporters_of
from ray_tracing_hooks._ops.reach import trial
from ray_tracing_hooks._ops.spools import LOCAL, SPOOL, folder, spools_of
from ray_tracing_hooks._safety.secrets import is_name_of_secret
from ray_tracing_hooks._settings.otel import VARIABLES, read_with_source
from ray_tracing_hooks._settings.table import all_settings
from ray_tracing_hooks._settings.values import MASK, masked
from ray_tracing_hooks._ship.log import Secrets
from ray_tracing_hooks._ship.start import environment

_EXTRA = 5.0
"""Seconds that a process may take in addition to the time-out of its requests."""


def examine(request: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a process that examines this machine.

    ``request`` has what :func:`~ray_tracing_hooks._ops.probe.look` has found, and what it was asked: ``hook``,
    ``control`` of a cluster that runs, ``trace_id`` for test spans or None to send none, and ``timeout`` in seconds.
    Raises OSError, ValueError or ``subprocess.SubprocessError``.
    """
    environ, is_on, configured = _in_force(str(request.get("control", "")))
    done = subprocess.run(  # noqa: S603  the arguments are ours
        [sys.executable, "-m", __name__],
        input=json.dumps(
            {
                **request,
                "environ": environ,
                "is_on": is_on,
                "configured": configured,
            }
        ),
        env=environment(environ),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=float(request["timeout"]) + _EXTRA,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"the examination failed: {done.stderr.strip()[-500:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _in_force(control: str) -> tuple[dict[str, str], bool, list[str]]:
    """The environment of this process with what is set for its cluster, whether spans are recorded by that, and the
    variables that are set so.
    """
    found = Control.decode(control.encode())
    is_on = found.enabled is not False
    # The sampler by which a process records nothing is no setting that anybody could find.
    return (found if is_on else found._replace(enabled=None)).over(os.environ), is_on, sorted(found.variables)


def _result(request: Mapping[str, Any]) -> dict[str, Any]:
    environ: dict[str, str] = request["environ"]
    live: dict[str, Any] = request.get("tracing") or {}
    given = live.get("directory")  # that relative paths are relative to
    directory: Callable[[], str] = (lambda: given) if given else os.getcwd
    found = effective(environ, exporters_of(request.get("hook"), live.get("exporters")), directory)
    secrets = Secrets(environ, found.environ)
    session = request.get("session_dir")
    spool = live.get("spool") or _spool(found, session)
    sends = None if is_disabled(environ) else request.get("trace_id")
    return {
        "exporters": list(found.exporters),
        "is_on": request["is_on"],
        "configured": request["configured"],
        "settings": _rows(found, environ),
        "problems": [[severity(problem), secrets.mask(problem)] for problem in found.problems],
        "misspelled": [list(pair) for pair in misspelled(environ)],
        "trials": trial(found, sends, float(request["timeout"]), secrets),
        "folders": [
            *([folder(SPOOL, spool, found.settings.spool_max_bytes)] if spool else []),
            *(
                [folder(LOCAL, found.settings.in_session(session or "").local_dir, 0)]
                if "local" in found.exporters
                else []
            ),
        ],
        "spools": spools_of(session, request.get("node_id") or "", spool, request),
    }


def _spool(found: Effective, session: str | None) -> str | None:
    """The folder with the spools of this node, if no traced process has told its own."""
    return found.settings.spool_dir or (session_folders(session)[0] if session else None)


def _rows(found: Effective, environ: Mapping[str, str]) -> dict[str, list[str]]:
    """The settings and standard variables that are set: by variable their value and its source.

    Secrets are masked. Of other mappings, values whose keys look like the name of a secret are masked too.
    """

    def shown(row: Any, value: Any) -> str:
        if isinstance(value, Mapping) and not row.secret:
            value = {key: MASK if is_name_of_secret(key) else each for key, each in value.items()}
        if row.secret:
            value = masked(row.kind, value)
        return value if row.secret and isinstance(value, str) else str(row.text(value))

    rows = {
        row.variable: [shown(row, found.settings.value(row)), source]
        for row in all_settings()
        if (source := found.sources.get(row.name, "default")) != "default"
    }
    for row in VARIABLES:
        value, variable = read_with_source(row.name, environ, lambda _problem: None)
        if variable is not None:
            rows[row.name] = [shown(row, value), variable]
    return rows


def main() -> None:
    """Examine this machine as standard input asks, and print the result."""
    request = json.load(sys.stdin)
    # Libraries may print; the result alone is on standard output.
    output = os.dup(1)
    os.dup2(2, 1)
    result = json.dumps(_result(request))
    with contextlib.suppress(BrokenPipeError), open(output, "w", encoding="utf-8") as file:
        file.write(result)
    # Threads of exporters that have not come to an end are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
