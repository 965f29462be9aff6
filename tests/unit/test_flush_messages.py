"""Flush requests and their answers."""

from __future__ import annotations

import json
import os
import select
import threading
from pathlib import Path

import pytest

from ray_tracing_hooks._private import open_folder
from ray_tracing_hooks._ship.files import take_lock
from ray_tracing_hooks._ship.flush import flush
from ray_tracing_hooks._ship.flush_messages import Answer, Request
from ray_tracing_hooks._ship.inbox import Inbox


def test_a_request_is_one_line_and_reads_as_it_was_written() -> None:
    request = Request("flush-0", timeout=2.5, until_writers_end=True, pid=7)
    line = request.encode()
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Request.decode(line) == request


@pytest.mark.parametrize(
    "line", [b"{", b"7", b"{}", b'{"answer": "a", "timeout": "x", "until_writers_end": 0, "pid": 1}']
)
def test_what_is_no_request_is_an_error(line: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        Request.decode(line)


def test_an_answer_is_never_written_outside_of_the_folder() -> None:
    """Whoever can ask can only name a file beside the FIFO."""
    asked = {"answer": "../../etc/passwd", "timeout": 1, "until_writers_end": False, "pid": 1}
    assert Request.decode(json.dumps(asked).encode()).answer == "passwd"


def test_an_answer_reads_as_it_was_written() -> None:
    answer = Answer(done=False, problems=["a"], waiting=["b"], written=3)
    assert Answer.decode(answer.encode()) == answer
    assert Answer.decode(b'{"done": true, "problems": [], "waiting": []}') == Answer(done=True), "of an older release"


def test_an_answer_always_fits_into_a_pipe_at_once() -> None:
    """The last sentences are left out, and long ones are cut."""
    answer = Answer(done=False, problems=[f"{number} " + "x" * 2000 for number in range(50)], waiting=["w" * 300] * 50)
    line = answer.encode()
    assert len(line) <= select.PIPE_BUF
    found = Answer.decode(line)
    assert not found.done
    assert len(answer.problems) == 50, "the answer itself stays as it is"


def test_a_shipper_that_starts_late_has_what_is_left_of_the_time(tmp_path: Path) -> None:
    """It then answers with the reason why spans wait, before the one that asks gives up."""
    spool = tmp_path / "spool"
    spool.mkdir(mode=0o700)
    lock = take_lock(str(spool))
    assert lock is not None
    heard: list[Request] = []

    def start() -> None:
        while not list(spool.glob("flush-*")):
            pass
        folder = open_folder(str(spool))
        inbox = Inbox(folder)
        while not heard:
            inbox.wait(60)
            heard.extend(map(Request.decode, inbox.heard()))
        inbox.answer(heard[0].answer, Answer(False, ["the collector is away"]).encode)
        inbox.close()
        os.close(folder)

    shipper = threading.Thread(target=start)
    shipper.start()
    assert flush(str(spool), 60).problems == ["the collector is away"]
    shipper.join()
    os.close(lock)
    assert 0 < heard[0].timeout < 60
