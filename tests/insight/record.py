"""Runs the programs of ``programs/planted.py`` and ``planted_data.py`` on Ray, and keeps their spans in ``recorded/``.

    .venv/bin/python tests/insight/record.py [NAME]...

Without a NAME it records all of them, which takes some minutes: do so where spans get new attributes that the analysis
is to use. Record on an idle machine; on a busy one the start of workers is a finding too.
"""

from __future__ import annotations

import glob
import gzip
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = (  # a new program of planted.py belongs here too
    "healthy",
    "bottleneck",
    "straggler",
    "get_in_loop",
    "killed",
    "tiny_tasks",
    "large_arguments",
    "serial_driver",
    "slow_node",
    "idle_gpu",
    "tree",
    "pipeline",
    "sweep",
    "parameter_server",
)
OF_SERVE = ("serving", "waiting_requests")
"""With ray[serve], which is in a folder of its own."""
OF_DATA = (
    "data_healthy",
    "data_bottleneck",
    "data_slow_start",
    "data_skewed",
    "data_backpressure",
    "data_spill",
)
"""Programs of planted_data.py, with ray[data], which is in another one."""
DATA = "data_pipeline"
"""Recorded without the part ``data``, and with Ray's internal tasks and actors instead."""
TRAINING = ("training", "late_rank", "held_resources", "training_fails", "trials_fail")
"""Runs of Ray Train and Tune, of ``planted_training.py``: with what the Makefile installs for their tests."""
EXAMPLE = "worker_tree"
"""Recorded too: a program of the examples, with something of everything."""


def record(name: str, parts: str, to: str, **variables: str) -> None:
    """Run one program with these parts of Ray traced, and pack its spans into one file."""
    with tempfile.TemporaryDirectory(prefix="rec-") as folder:
        settings = {
            "RAY_TRACING_LOCAL_DIR": f"{folder}/spans",
            "RAY_TRACING_RAY": parts,
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "disabled",
            "PLANTED_FOLDER": folder,
            **variables,
        }
        planted = "planted_data" if name in OF_DATA else "planted_training" if name in TRAINING else "planted"
        program = os.path.join(HERE, "programs", f"{planted}.py")
        if name == EXAMPLE:
            program = os.path.join(HERE, "..", "..", "examples", f"{EXAMPLE}.py")
        subprocess.run([sys.executable, program, name], env=os.environ | settings, check=True, timeout=300)
        with gzip.GzipFile(to, "wb", mtime=0) as packed:
            for path in sorted(glob.glob(f"{folder}/spans/*.jsonl")):
                with open(path, "rb") as file:
                    packed.writelines(file)


def main() -> None:
    known = (*NAMES, *OF_SERVE, *OF_DATA, *TRAINING, EXAMPLE, DATA)
    with_serve = {"PYTHONPATH": os.path.join(sys.prefix, "extras")}
    with_data = {"PYTHONPATH": os.path.join(sys.prefix, "data")}
    with_training = {"PYTHONPATH": os.path.join(sys.prefix, "train")}
    asked = sys.argv[1:] or known
    if unknown := set(asked) - set(known):
        sys.exit(f"record.py: no such run: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    os.makedirs(f"{HERE}/recorded", exist_ok=True)
    for name in asked:
        if name in OF_DATA:
            record(name, "task,actor,data,get,wait,put", f"{HERE}/recorded/{name}.jsonl.gz", **with_data)
        elif name in OF_SERVE:
            record(name, "task,actor,serve,get,wait", f"{HERE}/recorded/{name}.jsonl.gz", **with_serve)
        elif name in TRAINING:
            record(name, "+get,wait", f"{HERE}/recorded/{name}.jsonl.gz", **with_training)
        elif name != DATA:
            record(name, "task,actor,get,wait,put", f"{HERE}/recorded/{name}.jsonl.gz")
        if name != DATA:
            print(name, os.path.getsize(f"{HERE}/recorded/{name}.jsonl.gz"))
    if DATA in asked:
        record(DATA, "task,actor,job,serve", f"{HERE}/recorded/{DATA}.jsonl.gz", **with_data)
        with_all = {**with_data, "RAY_TRACING_INTERNAL": "1"}
        record(DATA, "task,actor,get,wait", f"{HERE}/recorded/{DATA}_internal.jsonl.gz", **with_all)
    if "bottleneck" in asked:
        record("bottleneck", "task,actor", f"{HERE}/recorded/bottleneck_inferred.jsonl.gz")
    if "data_bottleneck" in asked:
        by_default = "task,actor,job,serve,data"
        record("data_bottleneck", by_default, f"{HERE}/recorded/data_bottleneck_inferred.jsonl.gz", **with_data)


if __name__ == "__main__":
    main()
