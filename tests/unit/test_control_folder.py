"""What is set for a running cluster: how processes learn of it, and how a command learns which have applied it."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ray_tracing_hooks._control import listener as listening
from ray_tracing_hooks._control.control import Control, acknowledge, publish
from ray_tracing_hooks._control.listener import CONTROL, Listener, read
from ray_tracing_hooks._safety import guard

LONG = 30.0


def control(version: int, **variables: str) -> Control:
    return Control(version, True, variables)


def awaited(condition: Callable[[], bool], seconds: float = LONG) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Below one that is there, as that of the spools is."""
    monkeypatch.setattr(listening, "PAUSE", 0.01)
    return str(tmp_path / "control")


class Following:
    """A process of this name that follows what is set in a folder, in a thread of this one."""

    def __init__(self, folder: str, name: str = "p") -> None:
        self.versions: list[int] = []
        self.name = name
        self.listener = Listener(folder, self._apply)
        assert self.listener.start()

    def _apply(self, found: bytes) -> None:
        changed = Control.decode(found)
        self.versions.append(changed.version)
        acknowledge(self.listener.folder, changed, self.name)


def test_all_processes_apply_a_change_and_say_so(folder: str) -> None:
    """Each once, however many wait."""
    following = [Following(folder, f"p{number}") for number in range(20)]
    expected = [each.name for each in following]
    assert publish(folder, control(1), expected, LONG) == dict.fromkeys(expected, "")
    assert [each.versions for each in following] == [[1]] * 20
    for each in following:
        each.listener.end()


def test_no_change_is_missed_however_quickly_they_come(folder: str) -> None:
    """A process ends with the last one, and each is waited for until it has been applied, or a later one has."""
    following = Following(folder)
    for version in range(1, 31):
        assert publish(folder, control(version), ["p"], LONG) == {"p": ""}
    assert following.versions == [*range(1, 31)]
    following.listener.end()


def test_a_change_while_nobody_listens_is_seen_at_the_start(folder: str) -> None:
    assert publish(folder, control(1), [], LONG) == {}
    following = Following(folder)
    assert awaited(lambda: following.versions == [1])
    following.listener.end()


def test_a_process_that_does_not_answer_is_not_waited_for(folder: str) -> None:
    following = Following(folder)
    assert publish(folder, control(1), ["p", "stopped"], 0.5) == {"p": ""}
    following.listener.end()


def test_the_thread_is_not_among_those_of_the_program(folder: str) -> None:
    others, known = os.listdir("/proc/self/task"), threading.enumerate()
    following = Following(folder)
    (mine,) = [task for task in os.listdir("/proc/self/task") if task not in others]
    assert awaited(lambda: _blocks_signals(mine))
    assert threading.enumerate() == known
    following.listener.end()
    assert awaited(lambda: mine not in os.listdir("/proc/self/task"))


def _blocks_signals(task: str) -> bool:
    """Otherwise one that the kernel gives to this thread would not interrupt the main one."""
    text = Path(f"/proc/self/task/{task}/status").read_text()
    (blocked,) = [line.split()[1] for line in text.splitlines() if line.startswith("SigBlk")]
    return bool(int(blocked, 16) >> signal.SIGTERM - 1 & 1)


def test_an_error_in_applying_it_is_reported_and_the_next_change_comes(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    monkeypatch.setattr(guard, "report", reported.append)
    seen: list[int] = []

    def apply(found: bytes) -> None:
        seen.append(Control.decode(found).version)
        acknowledge(folder, Control.decode(found), "p", "it fails" if len(seen) == 1 else "")
        if len(seen) == 1:
            raise RuntimeError("it fails")

    listener = Listener(folder, apply)
    listener.start()
    assert publish(folder, control(1), ["p"], LONG) == {"p": "it fails"}
    assert publish(folder, control(2), ["p"], LONG) == {"p": ""}
    assert any("it fails" in text for text in reported)
    listener.end()


def test_nothing_is_applied_after_the_end(folder: str) -> None:
    following = Following(folder)
    following.listener.end()
    assert publish(folder, control(1), [], 1.0) == {}
    assert following.versions == []


def test_a_process_without_descriptors_listens_later(folder: str) -> None:
    """It has used all that it may have for a while."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        following = Following(folder)
        time.sleep(0.3)  # it tries, and fails
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert publish(folder, control(1), ["p"], LONG) == {"p": ""}
    following.listener.end()


def test_a_process_without_threads_applies_it_later(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has started all that it may have for a while."""
    start, refused = threading.Thread.start, threading.Event()

    def refuse(thread: threading.Thread) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    following = Following(folder)
    publish(folder, control(1), [], LONG)
    assert refused.wait(LONG)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert publish(folder, control(1), ["p"], LONG) == {"p": ""}
    assert following.versions == [1]
    following.listener.end()


def test_nodes_that_share_their_folder_publish_at_the_same_time(folder: str) -> None:
    """As nodes on one machine do; none sees a file of the other that is incomplete."""
    following = Following(folder)
    answers: list[dict[str, str]] = []
    told = ["p"]
    for version in range(1, 21):
        changed = control(version, RAY_TRACING_EXCLUDE="a" * 100_000)
        nodes = [
            threading.Thread(target=lambda each=changed: answers.append(publish(folder, each, told, LONG)))
            for _ in range(4)
        ]
        for node in nodes:
            node.start()
        for node in nodes:
            node.join()
    assert answers == [{"p": ""}] * 80
    assert following.versions == [*range(1, 21)]
    assert sorted(os.listdir(folder)) == ["applied-20", CONTROL]
    following.listener.end()


def test_a_command_that_was_overtaken_changes_nothing(folder: str) -> None:
    """It says so; also where the other one comes while it waits for answers."""
    publish(folder, control(2), [], LONG)
    with pytest.raises(OSError, match="version 2 has been set meanwhile"):
        publish(folder, control(1), [], LONG)
    assert Control.decode(read(folder)).version == 2
    problems: list[OSError] = []

    def wait_in_vain() -> None:
        try:
            publish(folder, control(3), ["nobody"], LONG)
        except OSError as error:
            problems.append(error)

    waiting = threading.Thread(target=wait_in_vain)
    waiting.start()
    assert awaited(lambda: Control.decode(read(folder)).version == 3)
    publish(folder, control(4), [], LONG)
    waiting.join()
    assert "has been set meanwhile" in str(problems)


def test_the_last_of_commands_at_the_same_time_is_never_refused(folder: str) -> None:
    """Nor its folder of answers removed, nor is an earlier change left in place."""
    for first in range(1, 101, 5):
        refused: list[int] = []

        def command(version: int, refused: list[int] = refused) -> None:
            try:
                publish(folder, control(version), [], LONG)
            except OSError:
                refused.append(version)

        commands = [threading.Thread(target=command, args=(first + each,)) for each in range(5)]
        for each in commands:
            each.start()
        for each in commands:
            each.join()
        assert first + 4 not in refused
        assert Control.decode(read(folder)).version == first + 4


def test_a_command_that_does_not_finish_is_reported(folder: str) -> None:
    """After the time limit. It may be stopped by a signal while it holds the folder's lock."""
    publish(folder, control(1), [], LONG)
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another command that publishes a change here does not finish"):
            publish(folder, control(2), [], 0.1)
    finally:
        os.close(opened)
    publish(folder, control(2), [], LONG)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"version": "1"}', b"\xff" * 100, b"x" * (1 << 20)])
def test_garbage_changes_nothing(folder: str, text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is right is applied afterwards."""
    reported: list[str] = []
    monkeypatch.setattr(guard, "report", reported.append)
    publish(folder, Control(), [], LONG)
    following = Following(folder)
    (Path(folder) / CONTROL).write_bytes(text)
    os.chmod(Path(folder) / CONTROL, 0o600)
    publish(folder, control(7), ["p"], LONG)
    assert following.versions[-1:] == [7]
    following.listener.end()


@pytest.mark.parametrize(
    "text",
    [
        *(b"{", b"[]", b"{}", b"[" * 100_000),
        b'{"version": 1, "enabled": []}',
        b'{"version": 1, "variables": {"OTEL_A": 1}}',
    ],
)
def test_what_is_malformed_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"it |Expecting"):
        Control.decode(text)


def test_what_is_set_survives_its_text() -> None:
    whole = Control(3, False, {"RAY_TRACING_EXCLUDE": "a.*"}, 2e9)
    assert Control.decode(whole.encode()) == whole
    assert Control.decode(b"") == Control()
    assert "a.*" not in repr(whole)


def test_what_is_off_for_a_time_is_on_after_it() -> None:
    """For whoever reads what is set then."""
    now = time.time()
    for until, expected in ((now + 3600, (False, now + 3600)), (now - 1, (True, None))):
        found = Control.decode(Control(3, False, until=until).encode())
        assert (found.version, found.enabled, found.until) == (3, *expected)


def test_what_is_set_takes_precedence() -> None:
    environ = {"RAY_TRACING_EXCLUDE": "a", "OTEL_SDK_DISABLED": "true", "OTEL_TRACES_SAMPLER": "always_on"}
    assert control(1, RAY_TRACING_EXCLUDE="b").over(environ)["RAY_TRACING_EXCLUDE"] == "b"
    assert control(1, OTEL_EXPORTER_OTLP_HEADERS="b=c").over(environ)["OTEL_EXPORTER_OTLP_HEADERS"] == "b=c"
    assert control(1).over(environ)["OTEL_SDK_DISABLED"] == ""
    assert Control(1, None, {}).over(environ) == environ
    assert Control(1, False, {}).over(environ)["OTEL_TRACES_SAMPLER"] == "always_off"


def test_only_settings_that_can_be_changed_reach_a_process() -> None:
    """Whoever can connect to the cluster can write there."""
    names = ["LD_PRELOAD", "PYTHONPATH", "https_proxy", "RAY_TRACING_CONFIG", "RAY_TRACING_STRICT", "OTEL_PROPAGATORS"]
    hostile = control(1, RAY_TRACING_EXCLUDE="b", **dict.fromkeys(names, "1"))
    assert hostile.over({}) == {"RAY_TRACING_EXCLUDE": "b", "OTEL_SDK_DISABLED": ""}
    assert hostile.refused == sorted(names)


def test_a_folder_of_another_user_is_not_read(tmp_path: Path) -> None:
    """Nor one behind a link, or a control file with a second name."""
    folder = tmp_path / "control"
    publish(str(folder), control(1), [], 1.0)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(OSError, match="symbolic link"):
        read(str(tmp_path / "link"))
    os.link(folder / CONTROL, folder / "second")
    with pytest.raises(OSError, match="second name"):
        read(str(folder))
    (folder / "second").unlink()
    if os.getuid() == 0:
        os.chown(folder / CONTROL, 12345, -1)
        with pytest.raises(OSError, match="another user"):
            read(str(folder))


def test_the_files_are_private(folder: str) -> None:
    previous = os.umask(0)
    try:
        publish(folder, control(1), [], 1.0)
        acknowledge(folder, control(1), "p")
    finally:
        os.umask(previous)
    found = [Path(folder), *Path(folder).rglob("*")]
    assert len(found) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in found)


def test_answers_of_earlier_changes_are_removed(folder: str) -> None:
    """A command that comes every minute leaves one folder."""
    for version in (1, 2, 3):
        publish(folder, control(version), [], 1.0)
        acknowledge(folder, control(version), "p")
    acknowledge(folder, control(2), "late")
    assert [path.name for path in Path(folder).iterdir() if path.is_dir()] == ["applied-3"]


def test_a_process_that_starts_much_later_does_not_answer(folder: str) -> None:
    """Nobody waits for it, and its file would stay."""
    publish(folder, control(1), [], 1.0)
    acknowledge(folder, control(1), "soon", if_lately=True)
    os.utime(Path(folder) / CONTROL, (time.time() - 3600,) * 2)
    acknowledge(folder, control(1), "later", if_lately=True)
    assert [path.name for path in (Path(folder) / "applied-1").iterdir()] == ["soon"]


PROGRAM = """
import os, sys, time
from ray_tracing_hooks._control.listener import Listener
from ray_tracing_hooks._control.control import Control
from ray_tracing_hooks._control.control import acknowledge
folder = sys.argv[1]
def apply(found):
    acknowledge(folder, Control.decode(found), str(os.getpid()))
Listener(folder, apply).start()
child = os.fork() if sys.argv[2] == "fork" else 0
os.write(1, b"ready\\n")
if sys.argv[2] == "fork" and child == 0:
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["fork", "plain"])
def test_a_program_ends_while_its_thread_waits(folder: str, how: str) -> None:
    """Also after a fork: the child has no such thread, and its parent's goes on."""
    command = [sys.executable, "-c", PROGRAM, folder, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(2 if how == "fork" else 1):
            assert process.stdout.readline() == "ready\n"
        answered = publish(folder, control(1), [str(process.pid)], LONG)
        assert answered == {str(process.pid): ""}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LONG) == 0


def test_a_stopped_process_applies_it_when_it_goes_on(folder: str) -> None:
    """Although the command has ended by then."""
    command = [sys.executable, "-c", PROGRAM, folder, "plain"]
    with ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)  # nobody else would let it go on
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGSTOP)
        assert awaited(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())
        assert publish(folder, control(1), [str(process.pid)], 0.3) == {}
        os.kill(process.pid, signal.SIGCONT)
        assert awaited((Path(folder) / "applied-1" / str(process.pid)).exists)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(LONG) == 0
