"""The shipper: real processes, real files, real kills."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from plans import made_plan
from shipping import MIB, Node, ended, until

from ray_tracing_hooks._ship.files import LOCK, SOCKET, take_lock
from ray_tracing_hooks._ship.flush import FlushResult
from ray_tracing_hooks._ship.folder import is_deserted
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._spool.reader import segments

pytestmark = pytest.mark.apart


def test_spans_arrive_and_their_segments_are_removed(node: Node) -> None:
    """Everything that a process wrote is in the output once, and when it has ended nothing of it is in the spool."""
    node.start()
    writer = node.writer()
    writer.do("span 1 1000")
    assert node.flush().done
    assert node.numbers() == list(range(1, 1001))
    writer.end()
    until(lambda: not node.segments(), "the segment of the ended process is removed")
    assert node.numbers() == list(range(1, 1001))


def test_temporary_files_of_killed_processes_do_not_keep_the_spool(node: Node) -> None:
    """Those that a process has just begun to write stay, and so does the folder then."""
    node.plan = node.make_plan(raylet_socket=None)
    writer = node.writer()
    writer.do("span 1")
    pid = writer.process.pid
    writer.end()
    abandoned = [
        node.spool / f"{pid}-1-ab.000001.spool.new",
        *(node.spool / f"{name}.json.0123abcd.new" for name in ("plan", "status", "progress-local")),
    ]
    for path in abandoned:
        path.write_bytes(b"RTHSPL1\n")
    others = [node.spool / f"{os.getpid()}-{time.time_ns():x}-ab.000000.spool.new", node.spool / "notes.new"]
    for path in others:
        path.write_bytes(b"")
    ended(node.start())
    assert sorted(node.spool.iterdir()) == sorted(others)
    others.pop().unlink()
    with others[0].open("r+b") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        others[0] = others[0].rename(node.spool / f"{pid}-1-ab.000000.spool.new")
        ended(node.start())
        assert list(node.spool.iterdir()) == others
    ended(node.start())
    assert not node.spool.exists()


def test_segments_go_while_their_process_lives(node: Node) -> None:
    """A segment that a living process has moved on from is removed once it is delivered."""
    node.start()
    writer = node.writer(segment_bytes=2000)
    writer.do("span 1 500")
    assert node.flush().done
    until(lambda: len(node.segments()) == 1, "all but the current segment are removed")
    assert node.numbers() == list(range(1, 501))


def test_a_span_that_a_kill_cut_off_is_closed_as_an_error(node: Node) -> None:
    """It has an estimated end not before its start, the status ERROR "worker died", and says how it was closed."""
    node.start()
    writer = node.writer()
    writer.do("start 1 2")
    writer.do("span 1")
    assert node.flush().done
    before = time.time_ns()
    writer.kill()
    assert node.flush(until_writers_end=True).done
    assert node.numbers() == [1, 2]
    cut_off = next(span for span in node.spans() if int(span["spanId"], 16) == 2)
    assert cut_off["status"] == {"message": "worker died", "code": 2}
    assert cut_off["startTimeUnixNano"] == "1000"
    assert before <= int(cut_off["endTimeUnixNano"]) <= time.time_ns()
    assert {item["key"]: item["value"] for item in cut_off["attributes"]} == {
        "ray.end_estimated": {"boolValue": True},
        "error.type": {"stringValue": "worker_died"},
    }


def test_the_end_of_a_process_that_died_unseen_is_its_last_sign_of_life(node: Node) -> None:
    """Where no shipper ran when the process died, the end is when its spool file was last written to."""
    writer = node.writer()
    writer.do("start 1")
    writer.kill()
    (segment,) = node.segments()
    os.utime(segment, ns=(5000, 5000))
    node.start()
    assert node.flush(until_writers_end=True).done
    assert node.spans()[0]["endTimeUnixNano"] == "5000"


def test_a_process_that_lets_go_of_the_spool_is_not_taken_for_dead(node: Node) -> None:
    """A driver closes its spool at ray.shutdown() and may end its own spans long after that."""
    node.start()
    writer = node.writer()
    writer.do("start 1 2")
    writer.do("close")
    assert node.flush(until_writers_end=True).done
    until(lambda: not node.segments(), "the segment is removed")
    assert node.numbers() == []
    writer.do("span 1")
    writer.do("close")
    assert node.flush().done
    assert node.numbers() == [1]
    writer.kill()
    until(lambda: node.numbers() == [1, 2], "the span that never ended is closed")
    assert "status" not in node.spans()[0]


def test_open_spans_outlive_their_segment_and_a_shipper(node: Node) -> None:
    """A span that began in a segment long gone is closed, or recognised when it ends, by the next shipper too."""
    shipper = node.start()
    writer = node.writer(segment_bytes=500)
    writer.do("start 1 2")
    writer.do("span 3 100")
    until(lambda: not any("000000" in path.name for path in node.segments()), "the first segment is removed")
    shipper.kill()
    ended(shipper)
    assert node.start() != shipper
    writer.do("span 2")
    writer.kill()
    assert node.flush(until_writers_end=True).done
    assert node.numbers() == list(range(1, 101))
    assert ["status" in span for span in node.spans() if int(span["spanId"], 16) <= 2].count(True) == 1


def test_no_kill_of_the_shipper_loses_or_doubles_a_span(node: Node) -> None:
    """It is killed in the middle of its work again and again, while two processes write and files rotate."""
    node.plan = node.make_plan(local_file_max_bytes=MIB)
    count = 20_000
    writers = [node.writer(segment_bytes=200_000), node.writer(segment_bytes=200_000)]
    for index, writer in enumerate(writers):
        writer.ask(f"span {index * count + 1} {(index + 1) * count}")
    for _ in range(5):
        shipper = node.start()
        before = output_size(node)

        def is_at_work(before: int = before) -> bool:
            return output_size(node) > before or not node.segments()

        until(is_at_work, "the shipper is at work")
        shipper.kill()
        ended(shipper)
    for writer in writers:
        writer.heard()
        writer.end()
    node.start()
    assert node.flush(60, until_writers_end=True).done
    assert Counter(node.numbers()) == Counter(range(1, 2 * count + 1))


def output_size(node: Node) -> int:
    return size_of(node.out.glob("*.jsonl"))


def size_of(paths: Iterable[Path]) -> int:
    """Of those that are still there."""
    size = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def test_a_terminated_shipper_delivers_first(node: Node) -> None:
    """SIGTERM drains once; Ctrl-C, which goes to all processes of a terminal, does nothing."""
    shipper = node.start()
    assert node.flush().done
    writer = node.writer()
    shipper.send_signal(signal.SIGINT)
    shipper.send_signal(signal.SIGHUP)
    writer.do("span 1 100")
    assert node.flush().done
    writer.do("span 101 5000")
    shipper.terminate()
    ended(shipper)
    assert node.numbers() == list(range(1, 5001))


def test_a_shipper_that_a_thread_without_signals_has_started_can_be_terminated(node: Node) -> None:
    """As the one that applies changes of a running cluster."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        shipper = node.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert node.flush().done
    shipper.terminate()
    ended(shipper)


def test_there_is_one_shipper(node: Node) -> None:
    """However many processes ask for one at once, one is started."""
    program = (
        "import sys; from ray_tracing_hooks._ship.plan import ShipPlan\n"
        "from ray_tracing_hooks._ship.start import ensure_running\n"
        "print(ensure_running(sys.argv[1], ShipPlan.load(sys.argv[1])))"
    )
    node.plan.store(str(node.spool))
    contenders = [
        subprocess.Popen([sys.executable, "-c", program, str(node.spool)], stdout=subprocess.PIPE, text=True)
        for _ in range(6)
    ]
    answers = [contender.communicate(timeout=60)[0].strip() for contender in contenders]
    assert sorted(answers) == ["False"] * 5 + ["True"]
    assert node.flush().done
    assert len(node.shippers()) == 1
    assert ensure_running(str(node.spool), node.plan) is False


def test_a_second_shipper_ends_at_once(node: Node) -> None:
    """The module can be run by hand: beside a running shipper it does nothing, and says what is wrong otherwise."""
    node.start()
    command = [sys.executable, "-m", "ray_tracing_hooks._ship"]
    assert subprocess.run([*command, str(node.spool)], check=False, timeout=60).returncode == 0
    (node.folder / "empty").mkdir()
    done = subprocess.run(
        [*command, str(node.folder / "empty")], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "cannot be shipped" in done.stderr


def test_the_shipper_is_nobodys_child(node: Node) -> None:
    """It outlives the process that started it and is out of reach of Ray, which kills the children of a worker."""
    program = (
        "import os, sys; from ray_tracing_hooks._ship.plan import ShipPlan\n"
        "from ray_tracing_hooks._ship.start import ensure_running\n"
        "ensure_running(sys.argv[1], ShipPlan.load(sys.argv[1])); print(os.getpid())\n"
        "import psutil; print([child.pid for child in psutil.Process().children(recursive=True)])"
    )
    node.plan.store(str(node.spool))
    started = subprocess.run(
        [sys.executable, "-c", program, str(node.spool)], check=True, capture_output=True, text=True, timeout=60
    )
    pid, children = started.stdout.splitlines()
    assert children == "[]"
    assert node.flush().done
    (shipper,) = node.shippers()
    assert shipper.ppid() != int(pid)
    assert os.getsid(shipper.pid) != os.getsid(0)
    assert shipper.cwd() == "/"
    assert shipper.nice() == min(19, 10 + psutil.Process().nice())


def test_the_shipper_inherits_only_its_lock(node: Node) -> None:
    """A pipe or socket of the program that started it ends when that program closes it."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    shipper = node.start()
    assert node.flush().done
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    targets = set()
    for number in os.listdir(f"/proc/{shipper.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it keeps opening and closing files
            targets.add(os.readlink(f"/proc/{shipper.pid}/fd/{number}"))
    assert {str(node.spool / LOCK), os.devnull} <= targets


def test_the_shipper_imports_nothing_from_the_current_folder(node: Node) -> None:
    """It is started in a user's folder, where modules may have the names of those that it needs."""
    work = node.folder / "work"
    work.mkdir()
    for name in ("json", "socket", "sitecustomize", "logging"):
        (work / f"{name}.py").write_text(f"open({str(node.folder / 'hijacked')!r}, 'w')")
    program = (
        "import sys; sys.path = [path for path in sys.path if path]\n"
        "from ray_tracing_hooks._ship.plan import ShipPlan\n"
        "from ray_tracing_hooks._ship.start import ensure_running\n"
        f"sys.path.insert(0, {str(work)!r}); sys.path.insert(0, '')\n"
        f"ensure_running({str(node.spool)!r}, ShipPlan.load({str(node.spool)!r}))"
    )
    node.plan.store(str(node.spool))
    subprocess.run([sys.executable, "-c", program], check=True, cwd=work, timeout=60)
    assert node.flush().done
    assert not (node.folder / "hijacked").exists()


def test_a_flush_without_a_shipper_says_so(node: Node) -> None:
    """At once, so that the caller can start one and flush again."""
    began = time.monotonic()
    result = node.flush(30)
    assert not result.done
    assert not result.running
    assert "no shipper is running" in result.problems[0]
    assert time.monotonic() - began < 5
    shipper = node.start()
    assert node.flush().done
    shipper.kill()
    ended(shipper)
    assert not node.flush(30).running


def test_a_flush_waits_for_a_shipper_that_is_being_started(node: Node) -> None:
    """Between the start and the first look of a shipper no flush is turned away."""
    ensure_running(str(node.spool), node.plan)
    assert node.flush() == FlushResult(done=True)


def test_a_flush_gives_up_in_time(node: Node) -> None:
    """A living writer keeps a flush that waits for the end of all writers from being done."""
    node.start()
    writer = node.writer()
    writer.do("span 1")
    assert node.flush().done
    began = time.monotonic()
    assert not node.flush(0.3, until_writers_end=True).done
    assert 0.1 <= time.monotonic() - began < 5
    assert node.answer(0.3, until_writers_end=True) == FlushResult(done=False)
    assert node.numbers() == [1]


def test_a_flush_can_wait_for_the_end_of_all_writers(node: Node) -> None:
    """It is done as soon as the last one has died, with everything that was open closed."""
    node.start()
    writers = [node.writer() for _ in range(3)]
    for number, writer in enumerate(writers, 1):
        writer.do(f"start {number}")
    results: list[FlushResult] = []
    asking = threading.Thread(target=lambda: results.append(node.flush(60, until_writers_end=True)))
    asking.start()
    for writer in writers:
        assert asking.is_alive()
        writer.kill()
    asking.join(30)
    assert results == [FlushResult(done=True)]
    assert node.numbers() == [1, 2, 3]


def test_a_stopped_shipper_does_not_hang_a_flush(node: Node) -> None:
    """However ill the shipper is, the driver exits in time."""
    shipper = node.start()
    assert node.flush().done
    shipper.suspend()
    began = time.monotonic()
    result = node.flush(0.3)
    shipper.resume()
    assert time.monotonic() - began < 5
    assert not result.done
    assert "does not answer" in result.problems[0]


def test_the_shipper_ends_with_ray(node: Node, raylet: socket.socket) -> None:
    """Once the raylet is gone, all writers are dead and all spans are delivered, nothing stays behind."""
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1")
    raylet.close()
    assert node.flush().done
    writer.do("span 2")
    writer.kill()
    ended(shipper)
    assert node.numbers() == [1, 2]
    assert not node.spool.exists()
    assert "ended" in node.log()


def test_the_shipper_stays_with_ray(node: Node, raylet: socket.socket) -> None:
    """Between two jobs there are no writers, and the shipper waits for the next job. A dead shipper is replaced."""
    node.start()
    node.writer().do("span 1")
    node.writers[-1].kill()
    assert node.flush(until_writers_end=True).done
    until(lambda: not node.segments(), "the first job's segment is removed")
    for _ in range(3):
        raylet.accept()[0].close()
    node.writer().do("span 2")
    assert node.flush().done
    assert node.numbers() == [1, 2]


def test_a_raylet_is_not_troubled() -> None:
    """It logs every connection. Where the kernel's list shows that it listens, none is made."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as raylet:
        path = os.path.join(folder, "raylet")
        assert is_deserted(path)
        raylet.bind(path)
        assert is_deserted(path)
        raylet.listen()
        raylet.setblocking(False)
        assert not is_deserted(path)
        with pytest.raises(BlockingIOError):
            raylet.accept()
        raylet.close()
        assert is_deserted(path)


def test_the_folder_stays_for_a_driver_that_may_still_write(node: Node, raylet: socket.socket) -> None:
    """After ray.shutdown() a driver may record more; another shipper then delivers it."""
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1")
    writer.do("close")
    assert node.flush().done
    raylet.close()
    ended(shipper)
    assert os.listdir(node.spool) == []
    writer.do("span 2")
    writer.end()
    ensure_running(str(node.spool), node.plan)
    until(lambda: not node.spool.exists(), "it has delivered, and ended")
    assert node.numbers() == [1, 2]
    assert not node.spool.exists()


def test_what_cannot_be_delivered_waits_and_is_told(node: Node) -> None:
    """A file stands where the folder of spans should be: a flush says so, and when it is gone all spans arrive."""
    node.out.write_text("in the way")
    node.start()
    writer = node.writer()
    writer.do("span 1 100")
    result = node.answer()
    assert not result.done
    (problem,) = result.problems
    assert problem.startswith(f"cannot write spans to {str(node.out)!r}: it is not a folder")
    node.out.unlink()
    assert node.flush() == FlushResult(done=True)
    assert node.numbers() == list(range(1, 101))


def test_a_shipper_finds_a_file_that_is_named_from_the_folder_of_its_starter(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in another one."""
    (node.folder / "ca.pem").touch()
    monkeypatch.chdir(node.folder)
    os.environ["OTEL_EXPORTER_OTLP_CERTIFICATE"] = "ca.pem"
    shipper = node.start()
    assert shipper.cwd() != str(node.folder)
    assert shipper.environ()["OTEL_EXPORTER_OTLP_CERTIFICATE"] == str(node.folder / "ca.pem")


def test_a_failing_sink_holds_no_other_one_back(node: Node) -> None:
    """Each sink has its own progress; the spans stay in the spool for the one that has not got them."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        nobody = f"http://127.0.0.1:{probe.getsockname()[1]}"
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = nobody
    node.plan = node.make_plan(exporters=("otlp", "local"))
    node.start()
    writer = node.writer()
    writer.do("span 1 100")
    writer.end()
    until(lambda: node.numbers() == list(range(1, 101)), "the local sink has delivered")
    result = node.trouble(f"cannot reach {nobody}: connection refused")
    (waiting,) = result.waiting
    assert waiting.startswith(f"100 spans wait in {node.spool} for the exporter 'otlp'")
    assert len(node.segments()) == 1


def test_past_its_cap_the_spool_loses_the_oldest_spans_and_counts_them(node: Node) -> None:
    """While nothing can be delivered, the spool stays below its cap, and dropped spans are reported once."""
    node.out.write_text("in the way")
    node.plan = node.make_plan(spool_max_bytes=100_000)
    node.start()
    writer = node.writer(segment_bytes=5000)
    writer.do("span 1 5000")
    writer.end()
    until(lambda: size_of(node.segments()) <= 100_000, "the spool is below its cap")
    (told,) = [problem for problem in node.answer(0.3).problems if "lost" in problem]
    lost = int(told.split()[0])
    assert re.fullmatch(r"\d+ spans are lost, .* 100000 bytes .*RAY_TRACING_SPOOL_MAX_BYTES.*", told)
    assert not [problem for problem in node.answer(0.3).problems if "lost" in problem]
    node.out.unlink()
    assert node.flush().done
    assert node.numbers() == list(range(lost + 1, 5001))


def test_what_is_delivered_never_costs_what_is_not(node: Node) -> None:
    """Processes that run on keep their segments, delivered as they are, and together these may be more than the cap."""
    from ray_tracing_hooks._spool.writer import SpoolWriter

    node.plan = node.make_plan(spool_max_bytes=MIB)
    writers = [SpoolWriter(str(node.spool), segment_bytes=64 * 1024) for _ in range(40)]
    for index, each in enumerate(writers):
        prefix = each.scope(b"", b"\x0a\x01t").to_bytes(2, "little")
        for number in range(index * 100 + 1, index * 100 + 101):
            ids = number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big")
            each.span(prefix, b"\x0a\x10" + ids + b"\x2a\xf4\x03" + b"n" * 500)
    node.start()
    assert node.flush().done
    assert size_of(node.segments()) > 2 * MIB
    for first in range(10_001, 12_001, 400):
        writer = node.writer()
        writer.do(f"span {first} {first + 399}")
        writer.end()
    result = node.flush()
    assert (result.done, result.problems) == (True, [])
    assert node.numbers() == [*range(1, 4001), *range(10_001, 12_001)]
    for each in writers:
        each.close()


def test_rubbish_in_the_spool_stops_nothing(node: Node) -> None:
    """Damage costs only the damaged records; files that are not segments are left alone; both are reported."""
    writer = node.writer()
    writer.do("span 1 100")
    writer.end()
    (segment,) = node.segments()
    good = segment.read_bytes()
    damaged = bytearray(good)
    damaged[len(good) // 2] ^= 0xFF
    segment.write_bytes(damaged)
    (node.spool / "1-1-zeros.000000.spool").write_bytes(bytes(100_000))
    (node.spool / "1-1-random.000000.spool").write_bytes(os.urandom(100_000))
    (node.spool / "1-1-absurd.000000.spool").write_bytes(good[:8] + b"\xff" * 50 + good[8:])
    (node.spool / "1-1-empty.000000.spool").write_bytes(b"")
    (node.spool / "1-1-short.000000.spool").write_bytes(good[:3])
    (node.spool / "no-name.\u00b2.spool").write_bytes(b"")
    (node.spool / "1-1-folder.000000.spool").mkdir()
    os.symlink("/dev/zero", node.spool / "1-1-link.000000.spool")
    os.mkfifo(node.spool / "1-1-fifo.000000.spool")
    node.start()
    result = node.flush()
    assert result.done
    assert len(node.numbers()) == 199
    assert set(node.numbers()) == set(range(1, 101))
    assert any("damaged" in problem for problem in result.problems)
    # The first answer may come before the files are moved.
    until(lambda: not node.flush().problems, "each is reported once")
    folder = os.open(node.spool, os.O_PATH)
    for packet in (b"\x00\xff", b"[]", b'{"timeout": 3}'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as rubbish:
            rubbish.connect(f"/proc/self/fd/{folder}/{SOCKET}")
            rubbish.send(packet)
    os.close(folder)
    assert node.flush().done


def test_spans_that_cannot_be_decoded_are_skipped_and_counted(node: Node) -> None:
    """One of them does not keep its neighbours back."""
    from ray_tracing_hooks._spool.writer import SpoolWriter

    writer = SpoolWriter(str(node.spool))
    prefix = writer.scope(b"\xff\xff\xff", b"\x0a\x04test").to_bytes(2, "little")
    good = b"\x0a\x10" + bytes(15) + b"\x01\x12\x08" + bytes(7) + b"\x01"
    for span in (b"", b"\xff", good, b"\x0a\x10short"):
        writer.span(prefix, span)
    writer.span(b"\x77\x00", good)
    writer.start(prefix, b"\x0a")
    writer.close()
    node.start()
    result = node.flush()
    assert result.done
    assert sum("decoded" in problem or "no sense" in problem for problem in result.problems) == 3
    assert len([span for span in node.spans() if span]) == 1


def test_an_idle_shipper_costs_next_to_nothing(node: Node) -> None:
    """With 200 processes that write nothing it looks about once a second, and each look is cheap."""
    from ray_tracing_hooks._spool.writer import SpoolWriter

    writers = []
    for number in range(200):
        writer = SpoolWriter(str(node.spool))
        prefix = writer.scope(b"\x0a\x02\x0a\x00", b"").to_bytes(2, "little")
        writer.span(prefix, b"\x0a\x10" + number.to_bytes(16, "big") + b"\x12\x08" + number.to_bytes(8, "big"))
        writers.append(writer)
    shipper = node.start()
    assert node.flush().done
    until(lambda: segments(str(node.spool)), "the segments are there")
    before, began = sum(shipper.cpu_times()[:2]), time.monotonic()
    with pytest.raises(AssertionError):
        until(lambda: False, "a while has passed", seconds=4)
    share = (sum(shipper.cpu_times()[:2]) - before) / (time.monotonic() - began)
    for writer in writers:
        writer.close()
    assert share < 0.05


def test_a_lock_that_was_removed_does_not_count(tmp_path: Path) -> None:
    """A shipper that ends removes its lock file; who waited for that one gets the next."""
    first = take_lock(str(tmp_path))
    assert first is not None
    assert take_lock(str(tmp_path)) is None
    (tmp_path / LOCK).unlink()
    second = take_lock(str(tmp_path))
    assert second is not None
    os.close(first)
    os.close(second)


def test_who_only_looks_whether_a_shipper_runs_keeps_nobody_from_the_lock(tmp_path: Path) -> None:
    """As `status` and Prometheus do while a shipper starts."""
    program = (
        "import sys; from ray_tracing_hooks._ship.files import is_shipper_running\n"
        "print('looking', flush=True)\n"
        "while True: is_shipper_running(sys.argv[1])"
    )
    (tmp_path / LOCK).touch(0o600)
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE) as looking:
        assert looking.stdout is not None
        assert looking.stdout.readline()
        try:
            for _ in range(3000):
                lock = take_lock(str(tmp_path))
                assert lock is not None
                os.close(lock)
        finally:
            looking.kill()


def test_a_plan_survives_being_written_down(tmp_path: Path) -> None:
    """It is private, complete, and what another version added to it does no harm."""
    plan = made_plan(("local", "otlp"), "/a", 1, 2, 3, raylet_socket="/r", label="label")
    plan.store(str(tmp_path))
    assert ShipPlan.load(str(tmp_path)) == plan
    path = tmp_path / "plan.json"
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text(json.dumps({**json.loads(path.read_text()), "news": 1}))
    assert ShipPlan.load(str(tmp_path)) == plan
    for wrong in ("{}", "[]", "x", '{"exporters": 3}'):
        path.write_text(wrong)
        with pytest.raises(ValueError, match=r"."):
            ShipPlan.load(str(tmp_path))
