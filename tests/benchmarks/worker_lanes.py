"""What the benchmarks of workers share: the hooks to compare, and a driver for each with a cluster of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

UNTRACED = "untraced"
LOCAL = "ours, local"
HOOKS = {
    UNTRACED: "",
    # What Ray itself does where there is any hook, such as importing the API of OpenTelemetry.
    "empty hook": "timed_hook:nothing",
    LOCAL: "ray_tracing_hooks.local:setup",
    "ours, otlp": "ray_tracing_hooks.otlp:setup",
    "Ray's own": "ray.util.tracing.setup_local_tmp_tracing:setup_tracing",
    "batch, OTLP": "usual_hook:setup",
}

RESULT = "RESULT "


def drive(script: str, lane: str, collector: str, *arguments: object, **variables: str) -> Any:
    """What ``script`` prints after :data:`RESULT`, in JSON, when it is the driver of a lane."""
    with tempfile.TemporaryDirectory(prefix="rth-", ignore_cleanup_errors=True) as folder:
        environment = {
            **os.environ,
            "RAY_AUTH_MODE": "disabled",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": folder,
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "calls"), os.environ.get("PYTHONPATH", "")]),
            "RAY_TRACING_LOCAL_DIR": os.path.join(folder, "spans"),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector,
            **variables,
        }
        with open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            command = [sys.executable, script, "--drive", lane, *map(str, arguments)]
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, check=False, timeout=600
            )
            if done.returncode:
                log.seek(0)
                raise SystemExit(f"the driver of {lane!r} failed:\n{log.read()}")
    # Ray prints there too.
    return json.JSONDecoder().raw_decode(done.stdout.rpartition(RESULT)[2])[0]


@contextmanager
def cluster(hook: str) -> Iterator[None]:
    import ray

    options = {"_tracing_startup_hook": hook} if hook else {}
    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80_000_000, **options
    )
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def collector() -> Iterator[str]:
    """The address of one that answers at once."""
    command = [sys.executable, str(HERE / "shipper_throughput.py"), "--collect", "grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
