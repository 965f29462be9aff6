"""Flush requests and their answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ray_tracing_hooks._safety.private import inside, open_folder
from ray_tracing_hooks._ship.files import LOCK, SOCKET, take_lock
from ray_tracing_hooks._ship.flush import FlushRequest, FlushResult, flush
from ray_tracing_hooks._ship.flush_requests import Inbox


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Path]:
    """In a folder whose path is too long for the address of a socket, with the lock of a shipper."""
    spool = tmp_path / ("a" * 150)
    spool.mkdir(mode=0o700)
    lock = take_lock(str(spool))
    assert lock is not None
    yield spool
    os.close(lock)


@contextmanager
def listening(spool: Path) -> Iterator[Inbox]:
    folder = open_folder(str(spool))
    inbox = Inbox(folder)
    yield inbox
    inbox.close()
    os.close(folder)


def test_a_request_reads_as_it_was_written() -> None:
    request = FlushRequest(timeout=2.5, until_writers_end=True, pid=7)
    assert FlushRequest.decode(request.encode()) == request


@pytest.mark.parametrize(
    "packet", [b"{", b"7", b"{}", b'{"timeout": "x", "until_writers_end": 0, "pid": 1, "namespace": "0"}']
)
def test_a_malformed_request_is_an_error(packet: bytes) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        FlushRequest.decode(packet)


def test_an_answer_of_any_length_arrives(spool: Path) -> None:
    """The last of many sentences are left out, and long ones are cut."""
    texts = [f"{number} " + "\U0001f600\udc80\x01" * 2000 for number in range(500)]
    answer = FlushResult(False, texts, texts, written=3)
    with answering(spool, answer):
        found = flush(str(spool), 60)
    assert (found.done, found.running, found.written) == (False, True, 3)
    assert [text.split()[0] for text in found.problems] == [str(number) for number in range(len(found.problems))]
    assert len(found.problems) > 10


def test_a_shipper_that_starts_late_has_what_is_left_of_the_time(spool: Path) -> None:
    """It then answers with the reason why spans wait, before the one that asks gives up."""
    with answering(spool, FlushResult(False, ["the collector is away"])) as requests:
        assert flush(str(spool), 60).problems == ["the collector is away"]
    assert 0 < FlushRequest.decode(requests[0]).timeout < 60


def test_a_shipper_that_ends_without_an_answer_is_no_longer_running(spool: Path) -> None:
    """Once it has released its lock: no other one can be started before."""
    with answering(spool, None):
        result = flush(str(spool), 60)
    assert (result.done, result.running) == (False, False)
    assert "no shipper is running" in result.problems[0]


def test_a_requester_that_is_gone_is_not_waited_for(spool: Path) -> None:
    """Before or after its request."""
    with listening(spool) as inbox:
        folder = open_folder(str(spool))
        for packets in ([], [b"{}"]):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(f"{inside(folder)}/{SOCKET}")
                for packet in packets:
                    client.send(packet)
            found = inbox.take()
            assert [packet for _, packet in found] == packets
            for connection, _ in found:
                connection.close()
        os.close(folder)


@contextmanager
def answering(spool: Path, answer: FlushResult | None) -> Iterator[list[bytes]]:
    """A shipper that starts now and answers the first request so, or ends without an answer."""
    requests: list[bytes] = []

    def run() -> None:
        with listening(spool) as inbox:
            while not requests:
                inbox.wait(60)
                for connection, packet in inbox.take():
                    if answer is not None:
                        connection.send(answer.encode())
                    connection.close()
                    requests.append(packet)
        if answer is None:
            os.unlink(spool / LOCK)

    shipper = threading.Thread(target=run)
    shipper.start()
    yield requests
    shipper.join()
