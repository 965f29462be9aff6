"""Disks that fail under a running program: its results are the same, and spans are there or counted."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mounts import mounted
from shipping import until
from support import Run, check_links, run_program, spans_in

from ray_tracing_hooks import names
from ray_tracing_hooks._ship.flush import flush


class TwoHalves:
    """The program ``two_halves.py`` in a thread; what is done between its halves is the test's business."""

    def __init__(self, tmp_path: Path) -> None:
        self.step = tmp_path / "step"
        self.spool = tmp_path / "spool"
        self.spans = tmp_path / "spans"
        self.runs: list[Run] = []
        variables: dict[str, Any] = {
            "RTH_HOOK": "ray_tracing_hooks.local:setup",
            "RTH_STEP": str(self.step),
            "RAY_TRACING_LOCAL_DIR": str(self.spans),
            "RAY_TRACING_SPOOL_DIR": str(self.spool),
            "RAY_TRACING_FLUSH_TIMEOUT": "30",
        }
        self._thread = threading.Thread(
            target=lambda: self.runs.append(run_program("two_halves", check=False, **variables))
        )
        self._thread.start()

    def half(self) -> None:
        def reached() -> bool:
            assert self._thread.is_alive(), self.runs
            return self.step.with_suffix(".reached").exists()

        until(reached, "the first half is done", 90)

    def end(self) -> Run:
        self.step.write_text("")
        self._thread.join()
        (run,) = self.runs
        assert run.returncode == 0, run.stderr
        return run

    def close(self) -> None:
        """End the program, however far the test came."""
        self.step.write_text("")
        self._thread.join()

    def expected(self, run: Run) -> Counter[str]:
        names = Counter({"two_halves.py ray.driver": 1})
        for name, calls in (("Actor.__init__", 1), ("Actor.add", run.result)):
            names[f"{name} ray.remote"] = names[f"{name} ray.remote_worker"] = calls
        return names


@pytest.fixture
def program(tmp_path: Path) -> Iterator[TwoHalves]:
    program = TwoHalves(tmp_path)
    yield program
    program.close()


def remove(folder: Path) -> None:
    """Remove a folder, although a shipper renames files there meanwhile."""
    for _ in range(100):
        with contextlib.suppress(OSError):  # what was there is gone, or something new is there
            shutil.rmtree(folder)
            return
    raise AssertionError(f"{folder} cannot be removed")


def test_a_spool_that_is_removed_under_a_program_is_made_anew(program: TwoHalves) -> None:
    """Its folder is removed with all that is in it: every span is there all the same."""
    program.half()
    remove(program.spool)
    run = program.end()
    spans = spans_in(program.spans)
    print(f"spans expected {program.expected(run).total()}, found {len(spans)}")
    assert Counter(span.name for span in spans) == program.expected(run)
    check_links(spans)


@pytest.fixture
def small_spool(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a mebibyte where the spool goes."""
    (tmp_path / "spans").write_text("in the way")
    with mounted(tmp_path / "spool", "size=512k,mode=700") as folder:
        yield folder


def test_a_full_disk_is_said_once_and_recording_goes_on_when_there_is_room(
    small_spool: Path, program: TwoHalves
) -> None:
    """What the spool did not take is counted to the span. Nothing else is missing, and nothing is there twice."""
    program.half()
    program.spans.unlink()
    (spool,) = small_spool.iterdir()
    assert flush(str(spool), 60).done
    # What is delivered makes room.
    until(lambda: os.statvfs(small_spool).f_bavail > 50, "there is room")
    run = program.end()
    spans = spans_in(program.spans)
    told = [line for line in run.stderr.splitlines() if "ray_tracing_hooks:" in line]
    assert len([line for line in told if "spans of this process are being dropped" in line]) == 1
    (lost,) = [line for line in told if "could not be written to the spool" in line and re.search(r" \d+ spans", line)]
    dropped = int(re.findall(r"(\d+) spans could not be written", lost)[0])
    expected = program.expected(run)
    print(f"spans expected {expected.total()}, found {len(spans)}, told as dropped {dropped}")
    assert dropped > 0
    # A span whose end was dropped is there as well, as one that never ended.
    ended = [span for span in spans if span.state == "ended" and not span.attributes.get(names.RAY_NEVER_ENDED)]
    assert len(ended) + dropped == expected.total()
    assert not Counter(span.name for span in spans) - expected
