"""The programs of the README and of the Kubernetes page, and the commands of the first tutorial, do what is shown."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from conftest import Cluster
from recordings import recorded
from support import EXAMPLES, LEAN, ended, path_with

from ray_tracing_hooks._cli import main

ROOT = EXAMPLES.parent


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


def done(words: list[str], folder: Path, **variables: str) -> str:
    """What a command prints that ends well, in a folder with the examples."""
    usual = {"RAY_TRACING_LOCAL_DIR": str(folder / "spans"), "COLUMNS": "120", "PYTHONPATH": path_with(LEAN)}
    run = ended(words, folder, **{**usual, **variables})
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


def without_figures(text: str) -> str:
    """The words of an output: ids, numbers and line breaks differ from run to run."""
    return " ".join(re.sub(r"#[0-9a-f]{8}|\d[\d.,]*( ?(us|ms|s|%)(?=\W))?", "N", text).split())


def test_the_program_of_the_readme_runs(tmp_path: Path) -> None:
    (program,) = (block for block in blocks("README.md", "python") if "import ray" in block)
    (tmp_path / "program.py").write_text(program)
    assert "DATA.CSV" in done([sys.executable, "program.py"], tmp_path)
    shown = done([sys.executable, "-m", "ray_tracing_hooks", "tree", "spans"], tmp_path)
    assert re.search(r"__main__.load.*\n\s+└─ parse", shown)


@pytest.mark.xdist_group("runs")  # on the cluster of other tests, as in Kubernetes
def test_the_program_of_the_kubernetes_page_and_of_its_job_runs(cluster: Cluster, tmp_path: Path) -> None:
    (shown,) = re.findall(r"-- (python -c .*)", (ROOT / "docs/guides/kubernetes.md").read_text())
    job = yaml.safe_load((ROOT / "deploy/kubernetes/overlays/rayjob/rayjob.yaml").read_text())
    assert job["spec"]["entrypoint"] == shown
    words = [sys.executable, *shlex.split(shown)[1:]]
    assert "traced" in done(words, tmp_path, RAY_ADDRESS=cluster.address).splitlines()


def finding(output: str) -> str:
    """The words of the first finding of an output."""
    return without_figures(re.split(r"\n\n|\n 2\. ", output.partition("Findings\n")[2])[0])


def test_the_finding_that_is_shown_has_the_words_of_the_summary() -> None:
    """Of a recorded run: the machine's load decides whether a run of the test has the same cause."""
    ended = CliRunner().invoke(main, ["summary", recorded("bottleneck")])
    shown = [block for name in ("docs/tutorials/slow-job.md", "README.md") for block in blocks(name, "console")]
    shown = [block for block in shown if "is a bottleneck" in block]
    assert {finding(block) for block in shown} == {finding(ended.output)}
    assert len(shown) == 2


@pytest.mark.slow(older_rays=True)  # two programs and four commands
def test_the_commands_of_the_slow_job_end_well_and_the_mended_job_has_no_bottleneck(tmp_path: Path) -> None:
    os.symlink(EXAMPLES, tmp_path / "examples")
    printed = []
    for block in blocks("docs/tutorials/slow-job.md", "console"):
        command = shlex.split(block.splitlines()[0].removeprefix("$ ray-tracing-hooks "))
        printed.append(done([sys.executable, "-m", "ray_tracing_hooks", *command], tmp_path))
    assert "165 calls of 3 functions" in printed[0]
    assert "is a bottleneck" not in printed[1]
    assert re.search(r"^ The run took \S+ s before and \S+ s now", printed[2], re.MULTILINE)
