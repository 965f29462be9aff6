"""``ray-tracing-hooks run`` with programs that know nothing of tracing."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import Cluster
from support import LEAN, by_name, ended, path_with, spans_in

RUN = (sys.executable, "-m", "ray_tracing_hooks", "run")
RESULT = "[1, 2, 3]\n"


def run(*options: str, arguments: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``plain.py`` by the command, which takes the place of Python."""
    program = str(Path(__file__).parent / "programs" / "plain.py")
    return ended([*RUN, *options, program, *arguments], PYTHONPATH=path_with(LEAN), **variables)


def test_a_program_is_traced_without_an_edit(tmp_path: Path) -> None:
    """Its spans are in a folder of the run's own, waits included; output and exit code are the program's."""
    done = run("--view", RAY_TRACING_LOCAL_DIR=str(tmp_path))
    assert (done.stdout, done.returncode) == (RESULT, 3), done.stderr
    (folder,) = tmp_path.iterdir()
    assert re.fullmatch(r"plain-\d{8}-\d{6}-\d+", folder.name)
    spans = spans_in(folder)
    counted = Counter(span.name for span in spans)
    assert counted == {
        "plain.py ray.driver": 1,
        "__main__.add ray.remote": 3,
        "__main__.add ray.remote_worker": 3,
        "ray.get": 1,
    }
    (driver,), (got,) = by_name(spans, "plain.py ray.driver"), by_name(spans, "ray.get")
    assert driver.end_ns - got.end_ns < 500_000_000, "it ends where the program does, before Ray's sleep at the exit"
    assert "plain.py took" in done.stderr
    assert "waiting was recorded" in " ".join(done.stderr.split())
    assert f"8 spans in {folder}. The report: {folder / 'report.html'}" in done.stderr
    assert (folder / "report.html").stat().st_size > 10_000
    # The command says it at the end, so the program does not.
    assert "next: " not in done.stderr


# With Ray a KeyboardInterrupt ends the interpreter with 1, and not by SIGINT.
@pytest.mark.parametrize(("ending", "code"), [("killed", -9), pytest.param("interrupted", 1, marks=pytest.mark.slow)])
def test_a_program_that_is_cut_off_is_summed_up(ending: str, code: int, tmp_path: Path) -> None:
    """What it had recorded is delivered, to the folder that was asked for; settings of the user's count."""
    folder = tmp_path / "here"
    folder.mkdir(mode=0o700)
    (folder / "report.html").write_text("my own work")
    done = run("--view", "--output", str(folder), arguments=(ending,), RAY_TRACING_RAY="task")
    assert (done.stdout, done.returncode) == (RESULT, code), done.stderr
    counted = Counter(span.name for span in spans_in(folder))
    assert counted["__main__.add ray.remote_worker"] == 3
    assert not counted["ray.get"]
    assert "waiting was not recorded" in " ".join(done.stderr.split())
    assert "report.html' exists and is not a report" in done.stderr
    assert (folder / "report.html").read_text() == "my own work"


def test_in_a_traced_cluster_the_spans_are_with_those_of_its_workers(cluster: Cluster, tmp_path: Path) -> None:
    """Where the cluster's spans go, all of this run go; the summary is of this run's trace."""
    done = run(RAY_ADDRESS=cluster.address, RAY_TRACING_LOCAL_DIR=str(cluster.spans))
    assert (done.stdout, done.returncode) == (RESULT, 3), done.stderr
    assert "plain.py took " in done.stderr
    assert "The spans of its workers go where that cluster's settings say" in " ".join(done.stderr.split())
    (trace,) = re.findall(r"ray-tracing-hooks view \S+ --trace (\w{32}) --open", done.stderr)
    assert Counter(span.name for span in spans_in(cluster.spans) if span.trace_id == trace) == {
        "plain.py ray.driver": 1,
        "__main__.add ray.remote": 3,
        "__main__.add ray.remote_worker": 3,
        "ray.get": 1,
    }


def test_in_an_untraced_cluster_it_is_said_what_to_do(untraced: str, tmp_path: Path) -> None:
    """At the start by the program, at the end by the command; the program does the same."""
    done = run(RAY_ADDRESS=untraced, RAY_TRACING_LOCAL_DIR=str(tmp_path / "spans"))
    assert (done.stdout, done.returncode) == (RESULT, 3), done.stderr
    first, last = (line for line in done.stderr.splitlines() if "ray start --head" in line)
    assert "this program is not traced" in first
    assert "nothing was traced" in last
    assert not (tmp_path / "spans").exists()


@pytest.mark.slow  # another cluster
def test_a_hook_that_the_program_names_stays(tmp_path: Path) -> None:
    """The program sets a hook, and no span is there twice."""
    program = str(Path(__file__).parent / "programs" / "small.py")
    variables = {"RTH_HOOK": "ray_tracing_hooks.local:setup", "RAY_TRACING_LOCAL_DIR": str(tmp_path)}
    done = ended([*RUN, program], PYTHONPATH=path_with(LEAN), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("tracing is on") == 1
    (folder,) = tmp_path.iterdir()
    spans = spans_in(folder)
    assert spans
    assert len({span.span_id for span in spans}) == len(spans)
