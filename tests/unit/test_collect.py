"""Collecting files: new ones come whole, whatever interrupted the last run, and nothing comes twice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from plans import made_plan
from shipping import Node, ended, until

from ray_tracing_hooks._cli import fetching, main
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._insight.ingest.files import span_files
from ray_tracing_hooks._insight.ingest.load import read
from ray_tracing_hooks._insight.store.targets import TargetError, target_of
from ray_tracing_hooks._ops import collect as collecting
from ray_tracing_hooks._ops import sources
from ray_tracing_hooks._ops.collect import Collected, SourceError, collect, here
from ray_tracing_hooks._ops.spools import waiting
from ray_tracing_hooks._spool.writer import SpoolWriter

SESSION = "session_2026-11-25_00-38-55_281040_31184"
LABEL = SESSION.removeprefix("session_")
OPTIONS = {"everything": False, "timeout": 20.0}


class Machine:
    """A machine with files in a folder of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.source = here(str(folder / SESSION))._replace(name=name, call=self._call)
        self.folder = folder
        self.breaks_after: int | None = None
        (folder / SESSION).mkdir(parents=True)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if function is sources.prepare:
            os.environ["RAY_TRACING_LOCAL_DIR"] = str(self.folder)
        elif self.breaks_after is not None:
            self.breaks_after -= 1
            if self.breaks_after < 0:
                raise SourceError("the node is gone")
        return function(*arguments)

    def write(self, data: bytes, number: int = 1, sub: str = "") -> Path:
        """Add to a file of this session."""
        folder = self.folder / sub
        folder.mkdir(exist_ok=True)
        path = folder / f"{LABEL}-aaaaaaaa-{number:04d}.jsonl"
        with open(path, "ab") as file:
            file.write(data)
        return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("RAY_TRACING_LOCAL_DIR", "")
    monkeypatch.setattr(collecting, "CHUNK", 1000)
    return Machine(tmp_path / "machine", "a")


def run(output: Path, *machines: Machine, everything: bool = False) -> Collected:
    told: list[tuple[str, int, int]] = []

    def advance(*what: Any) -> None:
        told.append(what)

    result = collect(
        [each.source for each in machines], {**OPTIONS, "everything": everything}, target_of(str(output)), advance
    )
    if result.files and not result.problems:
        doing, done, total = told[-1]
        assert (doing, done) == ("fetching files", total), "all of it is counted"
    return result


def contents(output: Path) -> dict[str, bytes]:
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def test_a_second_run_fetches_only_what_is_new(machine: Machine, tmp_path: Path) -> None:
    """New files, and those that have grown. Log records and metrics have folders of their own."""
    output = tmp_path / "output"
    first, metrics = machine.write(b"a" * 2500), machine.write(b"m" * 10, sub="metrics")
    states = machine.folder / f"task-states-{SESSION}.ndjson"
    states.write_bytes(b"states")
    result = run(output, machine)
    assert (result.files, result.bytes, result.fetched_bytes, result.problems) == (3, 2516, 2516, [])
    names = {first.name: b"a" * 2500, f"metrics/{metrics.name}": b"m" * 10, states.name: b"states"}
    assert contents(output) == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in output.rglob("*") if path.is_file()} == {0o600}
    assert stat.S_IMODE(output.stat().st_mode) == 0o700

    assert run(output, machine).fetched_bytes == 0
    machine.write(b"b" * 1500)
    machine.write(b"c" * 7, number=2)
    result = run(output, machine)
    assert (result.files, result.fetched_bytes) == (4, 4007)
    assert (output / first.name).read_bytes() == b"a" * 2500 + b"b" * 1500


def test_files_of_other_sessions_come_if_asked_for(machine: Machine, tmp_path: Path) -> None:
    machine.write(b"this")
    other = machine.folder / "2025-01-01_00-00-00_000000_1-bbbbbbbb-0001.jsonl"
    other.write_bytes(b"other")
    (machine.folder / "notes.txt").write_bytes(b"no spans")
    (machine.folder / f"{LABEL}-link.jsonl").symlink_to(other)
    assert run(tmp_path / "output", machine).files == 1
    assert run(tmp_path / "all", machine, everything=True).files == 2


def test_an_interrupted_run_leaves_no_incomplete_file(machine: Machine, tmp_path: Path) -> None:
    """A file that an earlier run has fetched stays as it was."""
    output = tmp_path / "output"
    path = machine.write(b"a" * 1000)
    run(output, machine)
    machine.write(b"b" * 5000)
    second = machine.write(b"c" * 5000, number=2)
    machine.breaks_after = 2
    result = run(output, machine)
    assert result.problems == [f"a: {each}: the node is gone" for each in (path, second)]
    assert contents(output) == {path.name: b"a" * 1000}
    machine.breaks_after = None
    result = run(output, machine)
    assert (result.fetched_bytes, result.problems) == (11_000, [])
    assert contents(output) == {path.name: path.read_bytes(), second.name: second.read_bytes()}


def test_a_file_that_becomes_shorter_while_it_is_read_is_a_problem(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = machine.write(b"a" * 1000)
    monkeypatch.setattr(sources, "chunk", lambda _path, _offset, size: b"?" * (size - 1))
    result = run(tmp_path / "output", machine)
    assert result.problems == [f"a: {path}: it has become shorter while it was read"]
    assert contents(tmp_path / "output") == {}


def test_nodes_that_share_a_folder_give_a_file_once(machine: Machine, tmp_path: Path) -> None:
    """As it was for the node that has looked at it last."""
    output = tmp_path / "output"
    other = Machine(tmp_path / "other", "b/1")
    machine.write(b"same" * 100)
    other.write(b"same" * 100 + b"and more")
    result = run(output, machine, other)
    assert (result.files, result.problems) == (1, [])
    assert contents(output) == {f"{LABEL}-aaaaaaaa-0001.jsonl": b"same" * 100 + b"and more"}


def test_files_of_other_programs_may_have_one_name_on_each_node(machine: Machine, tmp_path: Path) -> None:
    """Such as those of a Collector. No random part tells them apart."""
    other = Machine(tmp_path / "other", "b/1")
    (machine.folder / "collector.jsonl").write_bytes(b"of one")
    (other.folder / "collector.jsonl").write_bytes(b"of the other")
    assert run(tmp_path / "output", machine, other, everything=True).files == 2
    assert contents(tmp_path / "output") == {"collector.jsonl": b"of one", "collector_2.jsonl": b"of the other"}


def test_a_node_that_fails_keeps_nobody_else(machine: Machine, tmp_path: Path) -> None:
    machine.write(b"a" * 10)
    gone = Machine(tmp_path / "gone", "b")

    def prepared(function: Callable[..., Any], *arguments: Any) -> Any:
        raise SourceError("no answer within 60 s")

    gone.source = gone.source._replace(call=prepared)
    result = run(tmp_path / "output", machine, gone)
    assert (result.files, result.problems) == (1, ["b: no answer within 60 s"])


def test_a_node_names_nothing_outside_of_the_target(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"x")
    names = ("../up.jsonl", "/abs.jsonl", "logs/../../up.jsonl", ".hidden", "a/b.jsonl", "logs/.x", "")
    listed = {"files": [{"path": str(secret), "name": name, "size": 1} for name in names], "problems": []}
    monkeypatch.setattr(sources, "prepare", lambda _request: listed)
    assert run(tmp_path / "output", machine).files == 0
    assert contents(tmp_path / "output") == {}


def test_what_is_left_in_the_spools_of_a_session_is_written_to_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the end of a cluster, whatever its exporters were; each span once."""
    session = tmp_path / SESSION
    folder = session / "ray_tracing_hooks"
    folder.mkdir(parents=True, mode=0o700)
    local = tmp_path / "spans"
    monkeypatch.setenv("RAY_TRACING_LOCAL_DIR", str(local))
    for number, exporters in ((1, ("local",)), (2, ("otlp",))):
        (node_folder := tmp_path / f"n{number}").mkdir()
        node = Node(node_folder)
        node.spool.rmdir()
        node.spool = folder / f"aaaaaaaaaaaa-{number}"
        node.spool.mkdir(mode=0o700)
        node.plan = node.make_plan(exporters=exporters, local_dir=str(local), label=f"{LABEL}-aaaaaaa{number}")
        node.plan.store(str(node.spool))
        writer = node.writer()
        writer.do(f"span {number * 100 + 1} {number * 100 + 50}")
        writer.end()
    output = tmp_path / "output"
    result = collect([here(str(session))], OPTIONS, target_of(str(output)), lambda *_told: None)
    assert (result.files, result.problems) == (2, [])
    assert numbers(output) == [*range(101, 151), *range(201, 251)]
    assert len(list(folder.glob("*/*.spool"))) == 2, "the spools stay"
    again = collect([here(str(session))], OPTIONS, target_of(str(output)), lambda *_told: None)
    assert (again.files, again.fetched_bytes) == (2, 0)


def numbers(folder: Path) -> list[int]:
    return sorted(
        int(span["spanId"], 16)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    )


def of_session(node: Node, exporters: tuple[str, ...]) -> Path:
    """Make the node one of a session, whose folder is returned, with these exporters."""
    session = node.folder / SESSION
    (session / "ray_tracing_hooks").mkdir(parents=True, mode=0o700)
    node.spool.rmdir()
    node.spool = session / "ray_tracing_hooks" / "aaaaaaaaaaaa-1"
    node.spool.mkdir(mode=0o700)
    node.plan = node.make_plan(exporters=exporters, label=f"{LABEL}-aaaaaaaa")
    return session


@pytest.fixture
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("exporters", [("local", "otlp"), ("otlp",)])
def test_what_a_shipper_has_is_written_first(exporters: tuple[str, ...], node: Node, tmp_path: Path) -> None:
    """Without waiting for another destination that fails, which does not matter here; also where there are no local
    files. The shipper goes on.
    """
    session = of_session(node, exporters)
    shipper = node.start()
    writer = node.writer()
    writer.do("span 1 3000")
    result = collect([here(str(session))], OPTIONS, target_of(str(tmp_path / "output")), lambda *_told: None)
    assert result.problems == []
    assert numbers(tmp_path / "output") == list(range(1, 3001))
    assert shipper.is_running()
    until(node.segments, "the spool is as it was")
    writer.end()
    shipper.kill()
    ended(shipper)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("exporters", [("local",), ("local", "otlp")])
def test_what_a_killed_shipper_has_left_is_written_once(exporters: tuple[str, ...], node: Node, tmp_path: Path) -> None:
    """Also by the shipper that comes next."""
    session = of_session(node, exporters)
    node.plan.store(str(node.spool))
    writer = node.writer()
    writer.do("span 1 3000")
    result = collect([here(str(session))], OPTIONS, target_of(str(tmp_path / "output")), lambda *_told: None)
    assert result.problems == []
    assert numbers(tmp_path / "output") == list(range(1, 3001))
    shipper = node.start()
    writer.end()
    until(lambda: not waiting(str(node.spool)).get("local"), "the shipper has written what waits")
    shipper.kill()
    ended(shipper)
    assert numbers(Path(node.plan.settings.local_dir)) == list(range(1, 3001))


def test_two_runs_to_one_folder_take_turns(machine: Machine, tmp_path: Path) -> None:
    """As of two drivers that end at the same time."""
    path = machine.write(b"a" * 3000)
    first = target_of(str(tmp_path / "output"))
    waits, results = threading.Event(), []

    def second() -> None:
        target = target_of(str(tmp_path / "output"), waits.set)
        results.append(collect([machine.source], OPTIONS, target, lambda *_told: None))

    thread = threading.Thread(target=second)
    thread.start()
    assert waits.wait(60)
    assert results == []
    collect([machine.source], OPTIONS, first, lambda *_told: None)
    thread.join(60)
    assert [result.fetched_bytes for result in results] == [0]
    assert (tmp_path / "output" / path.name).read_bytes() == b"a" * 3000


def test_spans_whose_own_folder_takes_no_files_are_collected_from_their_spool(tmp_path: Path) -> None:
    """As of a folder that was named wrongly while the cluster ran."""
    spool, session = tmp_path / "spool", tmp_path / SESSION
    writer = SpoolWriter(str(spool))
    scope = writer.scope(encode.resource({}), encode.scope("test")).to_bytes(2, "little")
    ids, times = b"\x0a\x10" + b"t" * 16 + b"\x12\x08" + b"s" * 8, encode.start_time(1) + encode.end_time(2)
    writer.span(scope, ids + encode.name_and_kind("left", 1) + times)
    writer.close()
    made_plan(("local",), "/proc/nowhere", 1 << 20, 1 << 30, 1 << 30).store(str(spool))
    folder, lost = sources._write_left(str(spool), str(session), 5.0, runs=False)
    assert lost == []
    assert Path(folder).is_relative_to(session)
    assert [span.name for span in read(span_files([folder]))[0]] == ["left"]


def test_a_folder_that_is_no_session_is_refused(tmp_path: Path) -> None:
    """Not a session in which nothing is new."""
    words = ["collect", str(tmp_path), "--output", str(tmp_path / "output")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert "is no session folder of Ray: expected one such as /tmp/ray/session_latest" in " ".join(done.output.split())
    assert not (tmp_path / "output").exists()
    (tmp_path / "ray_tracing_hooks").mkdir(mode=0o700)
    assert CliRunner().invoke(main, words).exit_code == 0


def test_a_place_that_can_be_no_store_is_refused_before_files_are_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long to fetch them."""
    monkeypatch.setattr(fetching, "fetch", lambda *_: pytest.fail("files were fetched"))
    (tmp_path / "ray_tracing_hooks").mkdir(mode=0o700)
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    done = CliRunner().invoke(main, ["collect", str(tmp_path), "--output", f"parquet:{in_the_way}"])
    assert done.exit_code == 2
    assert "is no folder: name one for the store" in " ".join(done.output.split())


def test_targets_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.touch()
    with pytest.raises(TargetError, match=r"cannot create the folder '.*file/sub': Not a directory"):
        target_of(str(in_the_way / "sub"))
    program = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from ray_tracing_hooks._insight.store.targets import target_of\n"
        "target_of('s3://key:secret@bucket/spans')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "TargetError: cannot write to s3://********@bucket/spans: it needs fsspec and the package" in done.stderr


def test_a_full_disk_ends_the_run(machine: Machine, tmp_path: Path, mount: Callable[..., Path]) -> None:
    """And leaves nothing; the next run fetches the file."""
    output = mount("size=64k")
    path = machine.write(b"a" * 200_000)
    with pytest.raises(TargetError, match=rf"cannot write '{output}/{path.name}': No space left on device"):
        run(output, machine)
    assert contents(output) == {}
    subprocess.run(["mount", "-o", "remount,size=4m", str(output)], check=True)
    assert run(output, machine).fetched_bytes == 200_000
    assert (output / path.name).read_bytes() == path.read_bytes()
