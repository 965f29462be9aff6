"""``RAY_TRACING_GROUP``: what a group may read, such as a sidecar container with another user id, and what it may not.

The tests act as other users, so they need root.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_tracing_hooks._formats.otlp import LOGS, TRACES
from ray_tracing_hooks._formats.task_states import Attempt
from ray_tracing_hooks._ray.states import StatesAnswer, keep
from ray_tracing_hooks._safety.private import open_folder
from ray_tracing_hooks._settings.table import Settings, load
from ray_tracing_hooks._ship.log import Secrets, log_to
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destinations
from ray_tracing_hooks._ship.sink import Batch, SinkContext
from ray_tracing_hooks._ship.sinks.local import LocalSink

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do something as another user")

RAY, SIDECAR, GROUP, OTHER = 12345, 23456, 34567, 45678
"""User ids of Ray's container and of its sidecar, neither in /etc/passwd; the group of the volume; and another one."""

SPAN = b"\x0a\x10" + bytes(16) + b"\x12\x08" + bytes(8) + b"\x2a\x01s"


@pytest.fixture
def volume() -> Iterator[Path]:
    """A volume of a pod with ``fsGroup``: of root and the group, which may write to it."""
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2777)
    yield folder
    shutil.rmtree(folder)


def as_user(user: int, groups: list[int], function: Callable[..., None], *arguments: object) -> list[str]:
    """What a function of this file prints, run as another user."""
    done = subprocess.run(
        [sys.executable, __file__, str(user), ",".join(map(str, groups)), function.__name__, *map(str, arguments)],
        umask=0o022,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def write(folder: str, group: str, signals: str = "2") -> None:
    """What a shipper does: a span, and a log record, to local files."""
    plan = ShipPlan(("local",), Settings(local_dir=folder, group=int(group) if group else None))
    for signal in (TRACES, LOGS)[: int(signals)]:
        sink = LocalSink(SinkContext(plan, {}, lambda _state: None, lambda _text, _count: None, {}, print, signal))
        sink.deliver([Batch(b"", b"", [SPAN if signal is not LOGS else b"\x2a\x03\x0a\x01s"])])
        sink.close()


def file_in(folder: Path) -> Path:
    (file,) = folder.glob("*.jsonl")
    return file


def mode(path: Path) -> tuple[int, int]:
    return stat.S_IMODE(path.stat().st_mode), path.stat().st_gid


def read(folder: str) -> None:
    """The beginnings of all files that this user can read."""
    for path, _, names in os.walk(folder):
        for name in names:
            print(Path(path, name).read_text()[:9])


def change(path: str) -> None:
    """Whether this user can create the file, or append to it."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT))
    except PermissionError as error:
        print(error.strerror)


def driver(folder: str, group: str) -> None:
    """What a driver says of its destinations."""
    plan = ShipPlan(("local",), Settings(local_dir=folder, group=int(group)))
    places, problems = destinations(plan, {})
    print(*places, *problems, sep="\n")


def log(path: str, group: str) -> None:
    """The delivery log."""
    assert log_to(path, Secrets({}), int(group)) is None


def spool(path: str) -> None:
    os.close(open_folder(path))


def states(folder: str) -> None:
    """Task states, beside the spans."""
    keep(folder, StatesAnswer("session_1", 0, iter([Attempt("aa", 0, "f", "NORMAL_TASK", "01", {})])))


def test_the_group_reads_what_the_local_exporter_writes_and_changes_nothing(volume: Path) -> None:
    """Folders that had to be created and those of log records included."""
    folder = volume / "ray" / "spans"
    assert as_user(RAY, [GROUP], write, folder, GROUP) == []
    spans, logs = file_in(folder), file_in(folder / "logs")
    assert [mode(path) for path in (spans, logs)] == [(0o640, GROUP)] * 2
    # The group of the volume is inherited with its bit, and nobody but the owner may write.
    assert [mode(path) for path in (folder.parent, folder, logs.parent)] == [(0o2750, GROUP)] * 3

    assert as_user(SIDECAR, [GROUP], read, folder) == ['{"resourc'] * 2
    assert as_user(SIDECAR, [OTHER], read, folder) == []
    for path in (spans, folder / "new", folder.parent / "new"):
        assert as_user(SIDECAR, [GROUP], change, path) == ["Permission denied"]


def test_without_the_setting_the_group_of_a_volume_reads_nothing(volume: Path) -> None:
    folder = volume / "spans"
    assert as_user(RAY, [GROUP], write, folder, "") == []
    assert mode(folder)[0] & 0o077 == mode(file_in(folder))[0] & 0o077 == 0
    assert as_user(SIDECAR, [GROUP], read, folder) == []


def test_a_folder_that_the_group_may_write_to_stays_as_it_is(volume: Path) -> None:
    """As Kubernetes leaves a volume with ``fsGroup`` when a pod starts anew: all of it for the group to write to."""
    folder = volume / "spans"
    folder.mkdir()
    os.chown(folder, RAY, GROUP)
    folder.chmod(0o2770)
    assert as_user(RAY, [GROUP], write, folder, GROUP, 1) == []
    assert (mode(folder), mode(file_in(folder))) == ((0o2770, GROUP), (0o640, GROUP))


@pytest.mark.parametrize(
    ("rights", "owner", "is_empty"), [(0o750, OTHER, True), (0o770, OTHER, True), (0o700, RAY, False)]
)
def test_a_folder_that_the_group_may_not_read_stays_as_it_is(
    volume: Path, rights: int, owner: int, *, is_empty: bool
) -> None:
    """It belongs to another group, or has private files, and is no folder of ours."""
    folder = volume / "spans"
    folder.mkdir()
    if not is_empty:
        (folder / "private").touch()
    os.chown(folder, RAY, owner)
    folder.chmod(rights)
    assert as_user(RAY, [GROUP], write, folder, GROUP, 1) == [
        (
            f"files in '{folder}' stay private, despite RAY_TRACING_GROUP: the group {GROUP} may not read it: "
            f"`chgrp {GROUP}` and `chmod g+rx` would let it"
        )
    ]
    assert (mode(folder), mode(file_in(folder))[0]) == ((rights, owner), 0o600)


def test_an_empty_private_folder_is_given_to_the_group(volume: Path) -> None:
    """Another thread of the shipper may just be making it."""
    folder = volume / "spans"
    folder.mkdir(mode=0o700)
    os.chown(folder, RAY, RAY)
    folder.chmod(0o700)
    assert as_user(RAY, [GROUP], write, folder, GROUP, 1) == []
    assert mode(folder) == (0o750, GROUP)


def test_a_group_that_the_user_is_not_in_reads_nothing_and_spans_are_written(volume: Path) -> None:
    """It is reported once, by the driver with what to do, and by the shipper."""
    folder = volume / "spans"
    (told,) = as_user(RAY, [GROUP], write, folder, OTHER, 1)
    assert told.startswith(f"files in '{folder}' stay private, despite RAY_TRACING_GROUP: ")
    assert f"it cannot be given to the group {OTHER}: Operation not permitted" in told
    assert mode(folder)[0] & 0o077 == mode(file_in(folder))[0] & 0o077 == 0
    assert file_in(folder).read_text().startswith('{"resourceSpans"')

    assert as_user(RAY, [GROUP], driver, folder, OTHER) == [
        str(folder),
        (
            f"RAY_TRACING_GROUP={OTHER} is not a group of this user (uid {RAY}), so files stay private: "
            f"expected one of {RAY}, {GROUP}; in Kubernetes, set `fsGroup` of the pod to it"
        ),
    ]


def test_the_delivery_log_is_for_the_group_too(volume: Path) -> None:
    path = volume / "ray_tracing_hooks-1.log"
    assert as_user(RAY, [GROUP], log, path, GROUP) == []
    assert mode(path) == (0o640, GROUP)


def test_a_spool_is_never_for_a_group(volume: Path) -> None:
    """It is read and sent by the shipper, so nobody else has to read it."""
    assert as_user(RAY, [GROUP], spool, volume / "spool") == []
    assert mode(volume / "spool")[0] & 0o077 == 0


def test_what_is_written_beside_the_spans_leaves_their_folder_readable(volume: Path) -> None:
    """Task states, which are private themselves."""
    folder = volume / "spans"
    assert as_user(RAY, [GROUP], write, folder, GROUP) == []
    assert as_user(RAY, [GROUP], states, folder) == []
    assert mode(folder) == (0o2750, GROUP)
    assert mode(folder / "task-states-session_1.ndjson")[0] == 0o600


@pytest.mark.parametrize("value", ["wheel-of-nobody", "-1", str(2**32 - 1), "1.5"])
def test_a_group_that_there_is_not_is_reported(value: str) -> None:
    problems: list[str] = []
    assert load({"RAY_TRACING_GROUP": value}, problems.append).group is None
    assert problems == [
        (
            f"RAY_TRACING_GROUP={value!r} is ignored: expected a group of this machine, by its number or its name; "
            "using none."
        ),
    ]


def test_a_group_has_a_number_or_a_name() -> None:
    assert load({"RAY_TRACING_GROUP": "root"}, print) == Settings(group=0)
    assert load({"RAY_TRACING_GROUP": "34567"}, print).group == GROUP


if __name__ == "__main__":
    user, groups, function, *arguments = sys.argv[1:]
    os.setgroups([int(group) for group in groups.split(",")])
    os.setgid(int(user))
    os.setuid(int(user))
    globals()[function](*arguments)
