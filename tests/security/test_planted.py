"""Files that another user placed where this package writes: refused and reported, without waiting or damage.

Another user is uid 65534 where the tests run as root. Without root what does not depend on who owns it is tested.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from plans import made_plan

from ray_tracing_hooks._connection.delivery import make_spool
from ray_tracing_hooks._connection.folders import is_first
from ray_tracing_hooks._formats.task_states import Attempt
from ray_tracing_hooks._ray.states import StatesAnswer, keep
from ray_tracing_hooks._safety.private import inside, open_file, open_folder
from ray_tracing_hooks._settings.table import Settings
from ray_tracing_hooks._ship.files import LOCK, PLAN, SOCKET, take_lock
from ray_tracing_hooks._ship.flush import flush
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.sink import DeliveryError, SinkContext
from ray_tracing_hooks._ship.sinks.local import LocalSink
from ray_tracing_hooks._ship.start import ensure_running
from ray_tracing_hooks._spool.writer import SpoolWriter

# Opening a FIFO may wait for ever.
pytestmark = pytest.mark.timeout(60)

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do something as another user")


@pytest.fixture(params=[0o1777, 0o777], ids=["sticky", "not sticky"])
def everybodys(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that every user may write to, as ``/tmp``, or as that of a Ray session."""
    folder = Path(tempfile.mkdtemp(prefix="rth-"))
    folder.chmod(request.param)
    yield folder
    shutil.rmtree(folder)


def as_nobody(command: str, *arguments: Path) -> None:
    """Run a line of shell as another user."""
    subprocess.run(["/bin/sh", "-ec", command, "sh", *map(str, arguments)], user=NOBODY, group=NOBODY, check=True)


def refusal(path: Path, *, given: bool = False) -> str:
    try:
        os.close(open_folder(str(path), given=given))
    except OSError as error:
        return str(error.strerror)
    return "it was not refused"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# What can be in the way, made by whoever runs the tests. ``victim`` is a file of his that must stay as it is.


def plant_file(path: Path, _victim: Path) -> None:
    path.write_text("planted")


def plant_folder(path: Path, _victim: Path) -> None:
    path.mkdir()


def plant_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim)


def plant_dangling_link(path: Path, victim: Path) -> None:
    path.symlink_to(victim.with_name("nowhere"))


def plant_hard_link(path: Path, victim: Path) -> None:
    path.hardlink_to(victim)


def plant_fifo(path: Path, _victim: Path) -> None:
    os.mkfifo(path)


def plant_socket(path: Path, _victim: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        folder = os.open(path.parent, os.O_PATH)
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def plant_device(path: Path, _victim: Path) -> None:
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 7))  # /dev/full: it can be opened, and says that it is full
    except PermissionError:
        pytest.skip("only root can make a device")


Plant = Callable[[Path, Path], None]
NO_FILE = re.compile("symbolic link|not a file|second name|Is a directory")
LINKS = [plant_link, plant_dangling_link]
NO_FILES: list[Plant] = [plant_folder, *LINKS, plant_hard_link, plant_fifo, plant_socket, plant_device]
NO_FOLDERS: list[Plant] = [plant_file, *LINKS, plant_hard_link, plant_fifo, plant_socket, plant_device]


def named(plant: Plant) -> str:
    return plant.__name__.removeprefix("plant_")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of the user's that has nothing to do with us."""
    file = tmp_path / "victim"
    file.write_text("mine")
    file.chmod(0o644)
    yield file
    assert (file.read_text(), mode(file)) == ("mine", 0o644)
    assert not (tmp_path / "nowhere").exists()


# Folders.


@pytest.mark.parametrize("umask", [0, 0o777], ids=["open", "closed"])
def test_folders_and_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Also the folders above that had to be made."""
    before = os.umask(umask)
    try:
        folder = open_folder(str(tmp_path / "a" / "b" / "c"))
        os.close(open_file("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=folder))
        os.close(folder)
    finally:
        os.umask(before)
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c", "a/b/c/file")] == [0o700, 0o700, 0o700, 0o600]


def unread(path: Path) -> tuple[int, ...]:
    """What is at a path, without the time at which it was last read: following a link reads the link."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_uid, found.st_gid, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.parametrize("plant", NO_FOLDERS, ids=named)
def test_what_is_no_folder_is_refused(tmp_path: Path, victim: Path, plant: Plant) -> None:
    path = tmp_path / "spans"
    plant(path, victim)
    before = unread(path)
    assert refusal(path) == (
        "it is a symbolic link, which somebody else may have put there" if plant in LINKS else "it is not a folder"
    )
    assert unread(path) == before


def test_a_link_to_a_folder_is_refused_even_of_ones_own(tmp_path: Path) -> None:
    """It is unknown who made the folder that it leads to, and why."""
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "spans").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in refusal(tmp_path / "spans")
    assert mode(tmp_path / "elsewhere") == 0o755


def test_ones_own_links_on_the_way_are_followed(tmp_path: Path) -> None:
    """As a home that is elsewhere: relative and absolute ones, through each other, and up."""
    (tmp_path / "data" / "here").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "up").symlink_to("../home/here")
    os.close(open_folder(str(tmp_path / "home" / "up" / "spans")))
    assert mode(tmp_path / "data" / "here" / "spans") == 0o700


@as_root
@pytest.mark.parametrize("target", ["{mine}", "{folder}/nowhere", "{folder}/theirs", "/proc/self/cwd"])
def test_a_link_of_another_user_on_the_way_is_refused(everybodys: Path, tmp_path: Path, target: str) -> None:
    """Wherever it leads: to a folder of ours, to one of his, to nothing."""
    (tmp_path / "mine").mkdir()
    to = target.format(mine=tmp_path / "mine", folder=everybodys)
    as_nobody('mkdir "$1/theirs"; ln -s "$2" "$1/link"', everybodys, Path(to))
    assert refusal(everybodys / "link" / "spans") == (
        f"'link' in it is a symbolic link that another user (uid {NOBODY}) put there"
    )
    assert list((tmp_path / "mine").iterdir()) == []


@as_root
@pytest.mark.parametrize("rights", ["0700", "0777", "1777"])
def test_a_folder_of_another_user_is_refused(everybodys: Path, rights: str) -> None:
    """Also one that lets us in."""
    as_nobody('mkdir "$1/spans"; chmod "$2" "$1/spans"', everybodys, Path(rights))
    assert refusal(everybodys / "spans") == f"it belongs to another user (uid {NOBODY})"
    assert refusal(everybodys / "spans", given=True) == f"it belongs to another user (uid {NOBODY})"
    assert list((everybodys / "spans").iterdir()) == []


@as_root
def test_a_folder_of_ours_below_one_of_another_user_is_ours(everybodys: Path) -> None:
    """He can move it away, not put anything into it: what was opened stays what it is."""
    as_nobody('mkdir "$1/theirs"; chmod 0777 "$1/theirs"', everybodys)
    folder = open_folder(str(everybodys / "theirs" / "spans"))
    as_nobody('mv "$1/theirs/spans" "$1/theirs/moved"; mkdir -m 0777 "$1/theirs/spans"', everybodys)
    os.close(open_file("file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder=folder))
    assert os.listdir(inside(folder)) == ["file"]
    assert list((everybodys / "theirs" / "spans").iterdir()) == []
    os.close(folder)
    assert refusal(everybodys / "theirs" / "spans") == f"it belongs to another user (uid {NOBODY})"


@pytest.mark.parametrize("rights", [0o700, 0o750, 0o755, 0o775, 0o2775, 0o777, 0o2777])
def test_only_folders_of_ours_are_closed_to_others(tmp_path: Path, rights: int) -> None:
    """One that the user names may be a folder of a project or a team, or a home, and others may have files in it."""
    tmp_path.chmod(rights)
    os.close(open_folder(str(tmp_path), given=True))
    assert mode(tmp_path) == rights
    os.close(open_folder(str(tmp_path)))
    assert mode(tmp_path) == rights & ~0o077


@pytest.mark.parametrize("given", [True, False])
def test_a_folder_that_all_users_share_is_refused_and_stays_open_to_them(tmp_path: Path, *, given: bool) -> None:
    """Root owns ``/tmp``: it must not be closed to everybody else, and is no place for spans."""
    tmp_path.chmod(0o1777)
    assert refusal(tmp_path, given=given) == "all users share it"
    assert mode(tmp_path) == 0o1777


def test_a_folder_that_is_exchanged_all_the_time_is_the_right_one_or_none(tmp_path: Path) -> None:
    """Another user may put a link in its place between the check and the opening."""
    real, lure, path = tmp_path / "real", tmp_path / "lure", tmp_path / "spans"
    for made in (real, lure):
        made.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(lure)
    over = threading.Event()

    def exchange() -> None:
        while not over.is_set():
            os.rename(tmp_path / "link", path)
            os.rename(path, tmp_path / "link")
            os.rename(real, path)
            os.rename(path, real)

    thread = threading.Thread(target=exchange)
    thread.start()
    found = {"real": 0, "refused": 0}
    try:
        for _ in range(3000):
            try:
                folder = open_folder(str(path), make=False)
            except OSError:
                found["refused"] += 1
                continue
            assert os.fstat(folder).st_ino != lure.stat().st_ino
            found["real"] += 1
            os.close(folder)
    finally:
        over.set()
        thread.join()
    print(found)
    assert found["refused"], "the link was in the way now and then"


# Files.


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("plant", NO_FILES, ids=named)
def test_what_is_no_file_of_ours_is_refused(tmp_path: Path, victim: Path, plant: Plant, flags: int) -> None:
    path = tmp_path / "file"
    plant(path, victim)
    with pytest.raises(OSError, match=NO_FILE):
        os.close(open_file(str(path), flags))


@as_root
def test_a_file_of_another_user_is_refused(everybodys: Path) -> None:
    as_nobody('echo planted > "$1/file"; chmod 0666 "$1/file"', everybodys)
    for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT):
        with pytest.raises(OSError, match=f"another user .uid {NOBODY}.|Permission denied"):
            os.close(open_file(str(everybodys / "file"), flags))
    assert (everybodys / "file").read_text() == "planted\n"


KILLED = "killed-0123456789abcde"
"""How the names of the files of a shipper begin that was killed."""


def local_sink(folder: Path, **state: object) -> LocalSink:
    plan = made_plan(("local",), str(folder), 1 << 20, 1 << 30, 1 << 30, label="node")
    return LocalSink(SinkContext(plan, state, lambda _: None, lambda *_: None, {}, lambda _: None))


@pytest.mark.parametrize("plant", NO_FILES, ids=named)
def test_local_files_go_round_what_is_planted(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """Whether it has the name of the next file or of the one that a killed shipper wrote to."""
    folder = tmp_path / "spans"
    folder.mkdir()
    folder.chmod(0o777)
    plant(folder / f"{KILLED}-0001.jsonl", victim)
    sink = local_sink(folder, name=KILLED, number=1, size=1)
    plant(folder / f"{sink.checkpoint()['name']}-0001.jsonl", victim)
    sink._write(b"{}\n")
    sink.close()
    (made,) = folder.glob("node-*-0002.jsonl")
    assert made.read_text() == "{}\n"
    assert (mode(folder), mode(made)) == (0o777, 0o600)


@as_root
def test_files_of_other_users_in_our_folder_are_left_alone(everybodys: Path) -> None:
    """Where they may write to it: not written to, counted, or removed by the cap; and they cannot read ours."""
    folder = everybodys / "spans"
    folder.mkdir()
    folder.chmod(0o777)
    as_nobody('for n in 1 2; do echo theirs > "$1/killed-0123456789abcde-000$n.jsonl"; done; chmod 666 "$1"/*', folder)
    sink = local_sink(folder, name=KILLED, number=1, size=0)
    sink._file_max_bytes, sink._max_bytes = 10, 20
    for _ in range(20):
        sink._write(b'{"resourceSpans":[]}\n')
        sink._keep_below_cap()
    sink.close()
    assert [(folder / f"{KILLED}-000{n}.jsonl").read_text() for n in (1, 2)] == ["theirs\n"] * 2
    ours = [path for path in folder.iterdir() if path.stat().st_uid == os.geteuid()]
    assert 0 < len(ours) < 6, "ours were removed by the cap"
    assert {mode(path) for path in ours} == {0o600}
    assert mode(folder) == 0o777


@pytest.mark.parametrize("plant", NO_FILES, ids=named)
def test_task_states_are_not_read_from_what_is_planted(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """They are added to the file of the session, in the folder of the spans."""
    plant(tmp_path / "task-states-session_1.ndjson", victim)
    with pytest.raises(OSError, match=NO_FILE):
        keep(str(tmp_path), StatesAnswer("session_1", 0, iter([Attempt("aa", 0, "f", "NORMAL_TASK", "01", {})])))


# The spool.


def writer_to(spool: Path, said: list[str]) -> Callable[[bytes], None]:
    writer = SpoolWriter(str(spool), segment_bytes=1, on_problem=said.append)
    prefix = writer.scope(b"", b"").to_bytes(2, "little")
    return lambda span: writer.span(prefix, span)


@pytest.mark.parametrize("plant", NO_FOLDERS, ids=named)
def test_a_spool_that_is_no_folder_is_refused_everywhere(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """By the process that records, the one that starts a shipper, the one that flushes, and the shipper."""
    spool = tmp_path / "spool"
    plant(spool, victim)
    said: list[str] = []
    writer_to(spool, said)(b"span")
    reason = "symbolic link" if plant in LINKS else "not a folder"
    assert reason in said[0]
    plan = made_plan(("local",), str(tmp_path / "out"), 1, 1, 1)
    with pytest.raises(OSError, match=reason):
        ensure_running(str(spool), plan)
    (problem,) = flush(str(spool), 5).problems
    assert reason in problem
    shipper = [sys.executable, "-m", "ray_tracing_hooks._ship", str(spool)]
    done = subprocess.run(shipper, capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 2
    assert reason in done.stderr


@as_root
@pytest.mark.parametrize("everybodys", [0o777], indirect=True)
def test_a_spool_that_another_user_put_in_place_of_ours_is_not_used(everybodys: Path) -> None:
    """Whoever could put segments there would have them sent with our credentials, as in CVE-2026-42191.

    A sticky folder would keep him from moving ours away. Those of a Ray session are not sticky.
    """
    spool = everybodys / "spool"
    said: list[str] = []
    record = writer_to(spool, said)
    record(b"span")
    as_nobody('mv "$1/spool" "$1/moved"; mkdir -m 0777 "$1/spool"; echo "{}" > "$1/spool/plan.json"', everybodys)
    record(b"span")
    record(b"span")
    assert said == [], "it goes on in the file that it has"
    assert os.listdir(spool) == ["plan.json"]
    writer_to(spool, said)(b"span")
    assert f"it belongs to another user (uid {NOBODY})" in said[0]
    with pytest.raises(OSError, match="another user"):
        ensure_running(str(spool), made_plan(("local",), "/nowhere", 1, 1, 1))
    assert "another user" in flush(str(spool), 5).problems[0]
    assert sorted(path.name for path in spool.iterdir()) == [PLAN]


@pytest.mark.parametrize("plant", NO_FILES, ids=named)
def test_a_planted_lock_is_refused(tmp_path: Path, victim: Path, plant: Plant) -> None:
    plant(tmp_path / LOCK, victim)
    with pytest.raises(OSError, match=NO_FILE):
        take_lock(str(tmp_path))


@pytest.mark.parametrize("plant", [plant_file, *NO_FILES], ids=named)
def test_only_a_socket_gets_requests(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """The request to a shipper goes to a socket that one listens on, or nowhere."""
    tmp_path.chmod(0o700)
    plant(tmp_path / SOCKET, victim)
    result = flush(str(tmp_path), 0.2)
    assert not result.done
    assert not result.running
    if plant is plant_file:
        assert (tmp_path / SOCKET).read_text() == "planted"


def test_what_is_no_plan_is_replaced(tmp_path: Path, victim: Path) -> None:
    for plant in (*LINKS, plant_hard_link, plant_fifo):
        plant(tmp_path / PLAN, victim)
        with pytest.raises(OSError, match=NO_FILE):
            ShipPlan.load(str(tmp_path))
        made_plan(("local",), "/out", 1, 1, 1).store(str(tmp_path))
        assert ShipPlan.load(str(tmp_path)).settings.local_dir == "/out"
        assert mode(tmp_path / PLAN) == 0o600
        (tmp_path / PLAN).unlink()


# What a process makes in the folder of a Ray session, which every user may write to.


def spool_in(session: Path, *, is_client: bool = False) -> str | None:
    process = SimpleNamespace(session_dir=str(session), node_id="" if is_client else "f" * 56, is_client=is_client)
    return make_spool(cast("Any", process), Settings(), made_plan(("local",), "/out", 1, 1, 1))


def test_the_spool_is_below_a_private_folder(tmp_path: Path, reports: list[str]) -> None:
    found = spool_in(tmp_path)
    assert found is not None
    assert Path(found).parent == tmp_path / "ray_tracing_hooks"
    assert (mode(Path(found)), mode(Path(found).parent)) == (0o700, 0o700)
    assert reports == []


@pytest.mark.parametrize("plant", NO_FOLDERS, ids=named)
def test_a_planted_session_folder_is_said_and_another_one_used(
    tmp_path: Path, victim: Path, plant: Plant, reports: list[str]
) -> None:
    plant(tmp_path / "ray_tracing_hooks", victim)
    found = spool_in(tmp_path)
    other = tmp_path / f"ray_tracing_hooks-{os.geteuid()}"
    assert found is not None
    assert Path(found).parent == other
    (said,) = reports
    assert said.startswith(f"the spool folder cannot be used: {str(tmp_path / 'ray_tracing_hooks')!r}: it is ")
    assert said.endswith(f"; using {str(other)!r}")


@as_root
def test_a_session_folder_of_another_user_is_said_and_another_one_used(everybodys: Path, reports: list[str]) -> None:
    """Who was first is an attacker, or shares his cluster with us. If both places are taken nothing is recorded."""
    as_nobody('mkdir -m 0777 "$1/ray_tracing_hooks"', everybodys)
    found = spool_in(everybodys)
    assert found is not None
    assert Path(found).parent.name == "ray_tracing_hooks-0"
    as_nobody('mkdir -m 0777 "$1/b"; cd "$1/b"; mkdir ray_tracing_hooks ray_tracing_hooks-0', everybodys)
    assert spool_in(everybodys / "b") is None
    assert [f"it belongs to another user (uid {NOBODY})" in said for said in reports] == [True] * 3
    assert reports[-1].endswith("; nothing is recorded")


@as_root
def test_a_folder_of_clients_that_another_user_has_made_is_said_and_not_used(
    everybodys: Path, reports: list[str]
) -> None:
    """It has no second place: nothing is recorded then."""
    as_nobody('mkdir -m 0777 "$1/ray_tracing_hooks-0"', everybodys)
    assert spool_in(everybodys / "ray_tracing_hooks-0", is_client=True) is None
    (said,) = reports
    assert f"it belongs to another user (uid {NOBODY})" in said
    assert said.endswith("; nothing is recorded")


@pytest.mark.parametrize("plant", [*NO_FOLDERS, plant_folder], ids=named)
def test_marks_of_what_was_said_go_nowhere_else(tmp_path: Path, victim: Path, plant: Plant) -> None:
    """And planted files suppress no messages."""
    plant(tmp_path / "ray_tracing_hooks", victim)
    assert is_first("said-1", str(tmp_path))
    assert not is_first("said-1", str(tmp_path))
    if plant is not plant_folder:
        assert (tmp_path / f"ray_tracing_hooks-{os.geteuid()}" / "said-1").exists()


def test_a_sink_that_is_refused_says_what_to_do(tmp_path: Path, victim: Path) -> None:
    plant_fifo(tmp_path / "spans", victim)
    with pytest.raises(DeliveryError) as caught:
        local_sink(tmp_path / "spans")
    assert str(caught.value) == (
        f"cannot write spans to {str(tmp_path / 'spans')!r}: it is not a folder; "
        "set RAY_TRACING_LOCAL_DIR to a folder of your own"
    )
