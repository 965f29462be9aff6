"""``ray-tracing-hooks collect`` on real clusters: the files of all nodes come to one place, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import installed
import pytest
from conftest import Nodes, start_head, stop_head
from ports import free_port
from support import HOOK, await_spans, command, python, spans_in, with_data

from ray_tracing_hooks._insight.store.targets import target_of

COMMAND = (sys.executable, "-m", "ray_tracing_hooks")
BY_SETTINGS = "--tracing-startup-hook=ray_tracing_hooks:setup"

TASKS = """
import ray, sys
ray.init(sys.argv[1] or None, log_to_driver=False, {options})
@ray.remote(num_cpus=0)
def task(number):
    return number
def on(node):
    return {{"resources": {{node: 0.001}}}}
for node in sys.argv[2].split(","):
    ray.get([task.options(name=f"on {{node}}", **(on(node) if node else {{}})).remote(number) for number in range(10)])
"""


@dataclass
class Spread:
    """A cluster whose nodes have folders of their own, and one that only sends, to nobody."""

    address: str
    folder: Path
    variables: dict[str, str]

    def run(self, nodes: str) -> None:
        """A driver that calls ten tasks on each of these nodes."""
        program = TASKS.format(options="")
        python("-c", program, self.address, nodes, **{**self.variables, "RAY_TRACING_FLUSH_TIMEOUT": "10"})

    def collect(self, output: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return command("collect", "--address", self.address, "--output", output, *arguments, **variables)


@pytest.fixture(scope="module")
def spread(short_tmp: Callable[[], Path]) -> Iterator[Spread]:
    folder = short_tmp()
    variables = {"RAY_TRACING_LOCAL_DIR": str(folder / "head")}
    head, address = start_head(folder, BY_SETTINGS, "--node-name=head", '--resources={"head":1}', **variables)
    nodes = Nodes(address, folder)
    try:
        nodes.start("second", '--resources={"second":1}', RAY_TRACING_LOCAL_DIR=str(folder / "second"))
        nodes.start(
            "sending",
            '--resources={"sending":1}',
            RAY_TRACING_EXPORTERS="otlp",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}",
        )
        yield Spread(address, folder, variables)
    finally:
        nodes.stop()
        stop_head(head)


def executed(spans: list[Any]) -> Counter[str]:
    """How many executions there are of the calls on each node, by what their submissions are called."""
    called = {span.span_id: span.attributes["ray.name"] for span in spans if "ray.name" in span.attributes}
    return Counter(called[span.parent_id] for span in spans if span.name.endswith(" ray.remote_worker"))


def submitted(spans: list[Any]) -> Counter[str]:
    return Counter(span.attributes.get("ray.name", "") for span in spans if span.name.endswith(" ray.remote"))


def test_the_spans_of_all_nodes_come_to_one_folder(spread: Spread, tmp_path: Path) -> None:
    """Also those that wait for a destination that is not there. A second run finds nothing new."""
    output = tmp_path / "output"
    spread.run("head,second,sending")
    done = spread.collect(str(output))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.splitlines()[1] == f"next: ray-tracing-hooks summary {output}"
    spans = spans_in(output)
    assert submitted(spans) == {"on head": 10, "on second": 10, "on sending": 10}
    known = {span.span_id for span in spans}
    ran = [span for span in spans if span.name.endswith(" ray.remote_worker")]
    assert len(ran) == 30
    assert len({span.attributes["ray.node_id"] for span in ran}) == 3
    assert {span.parent_id for span in ran} <= known
    assert len(known) == len(spans), "each once"
    assert not any("Visitor" in span.name for span in spans)

    again = spread.collect(str(output), "--json")
    assert again.returncode == 0
    described = json.loads(again.stdout)
    assert (described["output"], described["sources"], described["problems"]) == (str(output), 3, [])
    assert described["bytes"] > described["fetched_bytes"] == 0
    assert len(spans_in(output)) == len(spans)


@pytest.mark.slow  # it collects three times
def test_spans_go_to_whatever_fsspec_knows(spread: Spread, tmp_path: Path) -> None:
    """A file that has grown is written again. The result is that of a folder."""
    installed.folder("data")
    spread.run("second")
    for expected in (" fetched now", "; nothing new"):
        done = spread.collect(f"local://{tmp_path}/output", **with_data())
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout
    spread.run("second")
    assert " fetched now" in spread.collect(f"local://{tmp_path}/output", **with_data()).stdout
    assert spread.collect(str(tmp_path / "folder")).returncode == 0
    assert contents(tmp_path / "output") == contents(tmp_path / "folder")
    assert executed(spans_in(tmp_path / "output"))["on second"] >= 20


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_object_is_replaced_only_by_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a target shows no secret."""
    monkeypatch.syspath_prepend(os.path.join(sys.prefix, "data"))
    target = target_of(f"local://{tmp_path}/output?secret=1")
    assert "secret" not in target.text

    def breaking() -> Iterator[bytes]:
        yield b"part"
        raise ValueError

    with target.create("name") as file:
        file.writelines([b"who", b"le"])
    with pytest.raises(ValueError), target.create("name") as file:  # noqa: PT011  it is ours
        file.writelines(breaking())
    ((_, data),) = contents(next(tmp_path.iterdir())).items()
    assert data == b"whole"


@pytest.mark.slow  # several drivers
def test_a_driver_collects_at_its_end(spread: Spread, tmp_path: Path) -> None:
    """One that joins a cluster, and one that starts its own; what fails there fails no job."""
    output = tmp_path / "joined"
    run_at_end(spread.address, "second", output, **spread.variables)
    assert executed(spans_in(output))["on second"] >= 10
    assert any(span.name == "-c ray.driver" for span in spans_in(output))

    own = {"RAY_TRACING_LOCAL_DIR": str(tmp_path / "spans"), "RAY_TRACING_COLLECT_TIMEOUT": "1e300"}
    output = tmp_path / "own"
    said = run_at_end("", "", output, hook=HOOK, **own)
    assert executed(spans_in(output)) == {"on ": 10}
    assert spans_in(output) == spans_in(tmp_path / "spans")
    assert f"ray_tracing_hooks: next: ray-tracing-hooks summary {output}" in said

    (tmp_path / "in_the_way").touch()
    said = run_at_end(spread.address, "head", tmp_path / "in_the_way" / "sub", **spread.variables)
    assert "not all spans were collected: " in said
    assert "cannot create the folder" in said
    in_no_time = {**spread.variables, "RAY_TRACING_COLLECT_TIMEOUT": "0.01"}
    said = run_at_end(spread.address, "head", tmp_path / "late", **in_no_time)
    assert "not all spans were collected within 0.01 s (RAY_TRACING_COLLECT_TIMEOUT)" in said


def run_at_end(address: str, nodes: str, output: Path, hook: str = "", **variables: str) -> str:
    """A driver that ends well, and what it says."""
    options = f"_tracing_startup_hook={hook!r}, num_cpus=1, include_dashboard=False" if hook else ""
    program = TASKS.format(options=options)
    return python("-c", program, address, nodes, **{**variables, "RAY_TRACING_COLLECT_TO": str(output)}).stderr


@pytest.mark.slow  # a cluster of its own, whose session has the files
def test_files_may_be_with_the_logs_of_the_session(short_tmp: Callable[[], Path], tmp_path: Path) -> None:
    """Where what collects the logs of a cluster takes them; they are collected from there into a store as well."""
    folder = short_tmp()
    variables = {"RAY_TRACING_LOCAL_DIR": "session"}
    head, address = start_head(folder, BY_SETTINGS, **variables)
    try:
        python("-c", TASKS.format(options=""), address, "", **variables)
    finally:
        stop_head(head)
    shippers(folder)
    (session,) = {path.resolve() for path in (folder / "ray").glob("session_2*")}
    assert executed(spans_in(session / "logs" / "spans")) == {"on ": 10}
    packages = {"PYTHONPATH": os.path.join(sys.prefix, "data")}
    done = command("collect", str(session), "--output", f"parquet:{tmp_path}/runs", **variables, **packages)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "of 1 run" in done.stdout


def shippers(folder: Path) -> None:
    """End the shippers of these sessions, as the end of their machine would."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"ray_tracing_hooks._ship" in words and any(word.startswith(bytes(folder)) for word in words):
                os.kill(int(pid), signal.SIGKILL)


def test_wrong_use_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    session = tmp_path / "session_1"
    session.mkdir()
    for code, arguments, expected in (
        (1, (), "no Ray cluster started by `ray start` runs on this machine"),
        (2, (str(tmp_path), "--address", "127.0.0.1:1"), "give either session folders or --address"),
        (1, (str(tmp_path / "nowhere"),), "is no session folder of Ray"),
        (1, (str(tmp_path),), "is no session folder of Ray"),
        (2, (str(session), "--output", "nothing://x"), "cannot write to nothing://x: it needs fsspec and the package"),
    ):
        done = command("collect", *arguments, RAY_TMPDIR=str(tmp_path))
        assert done.returncode == code, done.stdout
        assert expected in " ".join(done.stderr.split())
    assert await_spans(tmp_path, lambda spans: not spans) == []
