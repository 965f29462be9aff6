"""The stages of a shipper: when they work, and when they sleep."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from plans import made_plan

from ray_tracing_hooks._ship import stage as stage_module
from ray_tracing_hooks._ship.folder import FolderSnapshot, ProcessSnapshot
from ray_tracing_hooks._ship.log import Problems
from ray_tracing_hooks._ship.stage import Stage, StageContext


class Recording(Stage):
    """Notes the looks that it processes, and when it rests."""

    def __init__(self, folder: Path) -> None:
        self.turns: list[int] = []
        self.ended, self.rested = threading.Semaphore(0), threading.Event()
        self.fails = False
        plan = made_plan(("local",), str(folder), 1, 1, 1)
        super().__init__("test", StageContext(str(folder), plan, {}, Problems(), self.ended.release), reports=False)

    @property
    def delay(self) -> float:
        return 0.0

    def _turn(self, look: FolderSnapshot, *, flush: bool) -> None:
        self.turns.append(look.number)
        if self.fails:
            raise ValueError

    def _on_idle(self) -> None:
        self.rested.set()

    def _close(self) -> None: ...

    def processes(self, look: FolderSnapshot, *, flush: bool = False) -> None:
        """Offer it, and wait for the end of the turn."""
        self.submit(look, flush=flush)
        assert self.ended.acquire(timeout=60)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path)
    made.start()
    yield made
    made.end(60)


def look(number: int, *, alive: bool = True) -> FolderSnapshot:
    return FolderSnapshot(number, {"1-1-1": ProcessSnapshot([], alive=alive, ended_at=None, unlocked_at=0.0)})


def test_a_look_without_news_counts_as_processed_and_wakes_nobody(stage: Recording) -> None:
    """Unless it is urgent: then it may be time for more than new spans."""
    stage.processes(look(1))
    stage.submit(look(2))
    assert stage.drained == 2
    stage.processes(look(3, alive=False))
    stage.processes(look(4, alive=False), flush=True)
    assert stage.flushed == stage.drained == 4
    assert stage.turns == [1, 3, 4]


def test_after_a_failure_and_while_progress_is_not_stored_every_look_is_processed(stage: Recording) -> None:
    stage.fails = True
    stage.processes(look(1))
    stage.processes(look(2))
    assert stage.drained == 0
    stage.fails = False
    stage.processes(look(3))
    stage.store_again()
    stage.processes(look(4))
    assert stage.turns == [1, 2, 3, 4]


def test_a_stage_rests_when_nothing_comes(stage: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and again after the next turn."""
    monkeypatch.setattr(stage_module, "_REST_AFTER", 0.01)
    for number in (1, 2):
        stage.rested.clear()
        stage.processes(look(number, alive=number == 1))
        assert stage.rested.wait(60)
