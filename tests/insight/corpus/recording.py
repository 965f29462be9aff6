"""Runs programs, and keeps their spans and what they measured in ``recorded/``."""

from __future__ import annotations

import glob
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corpus import Program

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"

MOST_BYTES = 60_000
"""Of one recording; most are far smaller, and all of them together stay below 2 MB."""

_TIMEOUT = 300
_PATIENCE = 20.0
_IMPORTS = {
    "data": "pandas,pyarrow.compute,ray.data.block,ray.data._internal.execution.streaming_executor",
    "extras": "ray.serve",
}
"""What workers import before the program starts, for programs of a library. Those of Ray Train start with it."""
_IDS = re.compile(rb'(?<=")[0-9a-f]{16}(?:[0-9a-f]{16}|[0-9a-f]{32}|[0-9a-f]{40})?(?=")')


def measured(program: Program) -> dict[str, Any]:
    """What a recorded program measured, as planted and mended: seconds of the run, and what each cause cost."""
    path = RECORDED / f"{program.name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def path_of(program: Program, *, mended: bool) -> Path:
    """The recording of a program."""
    return RECORDED / f"{program.name}{'_mended' if mended else ''}.jsonl.gz"


def states_of(program: Program, *, mended: bool) -> Path:
    """Ray's task states of a program; the name is one by which they are found."""
    return RECORDED / f"task-states-{program.name}{'_mended' if mended else ''}.ndjson"


def is_recorded(program: Program) -> bool:
    """Whether all forms of it that are recorded are."""
    return len(measured(program)) == (1 if program.is_healthy else 2)


def record(program: Program) -> str:
    """Record a program as planted and, if it has a cause, mended. Returns what to print of it."""
    told = []
    for mended in (False, True) if not program.is_healthy else (False,):
        with own_folder() as folder:
            found = run(program, folder, mended=mended)
            packed, states = pack(folder / "spans")
        if len(packed) > MOST_BYTES:
            message = f"{program.name}: {len(packed):,} bytes are too many, make fewer calls"
            raise ValueError(message)
        path_of(program, mended=mended).write_bytes(packed)
        if program.states:
            states_of(program, mended=mended).write_bytes(states)
        known = {**measured(program), "mended" if mended else "planted": found}
        (RECORDED / f"{program.name}.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        costs = " ".join(f"{cost:.2f}" for cost in found["costs"])
        told.append(
            f"{'mended' if mended else 'planted'} {found['wall']:.2f} s, cost {costs or '-'}, {len(packed):,} B"
        )
    return f"{program.name}: {'; '.join(told)}"


@contextmanager
def own_folder() -> Iterator[Path]:
    """A folder for one run. Shippers of the cluster may still write to it when that has ended."""
    folder = tempfile.mkdtemp(prefix="c-")
    try:
        yield Path(folder)
    finally:
        deadline = time.monotonic() + _PATIENCE
        while os.path.exists(folder) and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.1)


def run(program: Program, folder: Path, *, mended: bool) -> dict[str, Any]:
    """Run a program on a cluster of its own, with spans to ``spans`` of the folder. Returns what it measured."""
    library = {"PYTHONPATH": f"{Path(sys.prefix) / program.library}{os.pathsep}"} if program.library else {}
    environment = {
        **os.environ,
        "RAY_TRACING_LOCAL_DIR": str(folder / "spans"),
        "RAY_TRACING_RAY": program.parts,
        "RAY_TRACING_FLUSH_TIMEOUT": "60",
        "RAY_TMPDIR": str(folder),
        "RAY_AUTH_MODE": "disabled",
        "RAY_worker_maximum_startup_concurrency": "16",
        "RAY_worker_niceness": "0",
        "RAY_num_workers_soft_limit": "32",
        "RAY_idle_worker_killing_time_threshold_ms": "600000",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        "CORPUS_IMPORTS": _IMPORTS.get(program.library, ""),
        "CORPUS_FOLDER": str(folder),
        "CORPUS_READY": str(folder / "ready"),
        **program.settings,
        "PYTHONPATH": library.get("PYTHONPATH", "") + str(HERE.parent),
    }
    (folder / "ready").mkdir()
    to = folder / "measured.json"
    command = [sys.executable, "-m", f"corpus.programs.{program.subject}", program.name, "--to", str(to)]
    with subprocess.Popen(
        [*command, *(["--mended"] if mended else [])],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # it ends its cluster
            printed, _ = process.communicate()
    if process.returncode or not to.exists():
        sys.stderr.write(printed.decode(errors="replace"))
        message = f"{program.name} ended with {process.returncode}"
        raise RuntimeError(message)
    found: dict[str, Any] = json.loads(to.read_text())
    return found


def pack(spans: Path) -> tuple[bytes, bytes]:
    """The spans of a folder in one file, without the paths of this machine, and Ray's task states if there are any.

    Random ids hardly compress, so they are numbered. A part of an id that is in others as well stays the same in all.
    """
    numbers: dict[bytes, bytes] = {}

    def part(random: bytes) -> bytes:
        if random.endswith(b"ffffffff"):
            return random
        return numbers.setdefault(random, b"%08x%08x" % (len(numbers) + 1, 0))

    def numbered(found: re.Match[bytes]) -> bytes:
        given = found.group()
        first = part(given[:16])
        return first + part(given[16:32]) + given[32:] if len(given) >= 48 else first + given[16:]

    def read(pattern: str) -> bytes:
        return b"".join(Path(path).read_bytes() for path in sorted(glob.glob(f"{spans}/{pattern}")))

    text = read("*.jsonl")
    for place, instead in ((sys.prefix, "/env"), (str(HERE), "/corpus"), (os.environ.get("HOME", "/root"), "/home")):
        text = text.replace(place.encode(), instead.encode())
    return gzip.compress(_IDS.sub(numbered, text), 9, mtime=0), _IDS.sub(numbered, read("*.ndjson"))
