"""Records runs that tests of single views and findings use: programs with a bit of everything, in ``recorded/`` beside.

    cd tests/insight && ../../.venv/bin/python -m corpus scenes [NAME]...

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
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent.parent
RECORDED = TESTS / "recorded"


class Scene(NamedTuple):
    """A run of a program in ``programs``."""

    program: str
    name: str
    parts: str
    """``RAY_TRACING_RAY``."""
    library: str = ""
    """The folder in ``.venv`` with what a library of Ray needs."""
    variables: tuple[tuple[str, str], ...] = ()


_CORE = "task,actor,get,wait,put"
_DATA = "task,actor,data,get,wait,put"
_ALONE = "task,actor,job,serve"
_INTERNAL = (("RAY_TRACING_INTERNAL", "1"),)
_OF_CORE = ("bottleneck", "tree")
_OF_DATA = ("data_bottleneck", "data_skewed", "data_backpressure", "data_spill")

SCENES = {
    **{name: Scene("planted", name, _CORE) for name in _OF_CORE},
    "bottleneck_inferred": Scene("planted", "bottleneck", "task,actor"),
    **{name: Scene("planted", name, "task,actor,serve,get,wait", "extras") for name in ("serving", "waiting_requests")},
    **{name: Scene("planted_data", name, _DATA, "data") for name in _OF_DATA},
    "data_pipeline": Scene("planted", "data_pipeline", _ALONE, "data"),
    "data_pipeline_internal": Scene("planted", "data_pipeline", "task,actor,get,wait", "data", _INTERNAL),
    "worker_tree": Scene("worker_tree", "worker_tree", _CORE),
}
"""By the name of the recording."""


def record(name: str) -> str:
    """Run a scene, and pack its spans into one file. Returns what to print of it."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory(prefix="rec-") as folder:
        settings = {
            "RAY_TRACING_LOCAL_DIR": f"{folder}/spans",
            "RAY_TRACING_RAY": scene.parts,
            "RAY_TMPDIR": folder,
            "RAY_AUTH_MODE": "disabled",
            "PLANTED_FOLDER": folder,
            "PYTHONPATH": os.path.join(sys.prefix, scene.library) if scene.library else "",
            **dict(scene.variables),
        }
        program = TESTS / "programs" / f"{scene.program}.py"
        subprocess.run(
            [sys.executable, program, scene.name], env=os.environ | settings, cwd=folder, check=True, timeout=300
        )
        to = RECORDED / f"{name}.jsonl.gz"
        with gzip.GzipFile(to, "wb", mtime=0) as packed:
            for path in sorted(glob.glob(f"{folder}/spans/*.jsonl")):
                packed.write(Path(path).read_bytes())
    return f"{name}: {to.stat().st_size:,} B"
