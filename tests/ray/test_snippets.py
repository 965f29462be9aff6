"""The programs of the README and of the Kubernetes page, and the commands of the first tutorial, do what is shown."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
import yaml
from support import EXAMPLES, LEAN, ended, path_with

ROOT = EXAMPLES.parent


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)


def done(words: list[str], folder: Path) -> str:
    """What a command prints that ends well, in a folder with the examples."""
    variables = {"RAY_TRACING_LOCAL_DIR": str(folder / "spans"), "COLUMNS": "120", "PYTHONPATH": path_with(LEAN)}
    run = ended(words, folder, **variables)
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


def test_the_program_of_the_kubernetes_page_and_of_its_job_runs(tmp_path: Path) -> None:
    (shown,) = re.findall(r"-- (python -c .*)", (ROOT / "docs/guides/kubernetes.md").read_text())
    job = yaml.safe_load((ROOT / "deploy/kubernetes/overlays/rayjob/rayjob.yaml").read_text())
    assert job["spec"]["entrypoint"] == shown
    assert "traced" in done([sys.executable, *shlex.split(shown)[1:]], tmp_path).splitlines()


@pytest.mark.slow(older_rays=True)  # two programs and four commands; the corpus has the finding
def test_the_slow_job_is_slow_for_the_reason_that_is_shown_and_no_more_once_it_is_mended(tmp_path: Path) -> None:
    os.symlink(EXAMPLES, tmp_path / "examples")
    printed, shown = [], blocks("docs/tutorials/slow-job.md", "console")
    for block in shown:
        command = shlex.split(block.splitlines()[0].removeprefix("$ ray-tracing-hooks "))
        printed.append(without_figures(done([sys.executable, "-m", "ray_tracing_hooks", *command], tmp_path)))
    (readme,) = (block for block in blocks("README.md", "console") if "slow_job" in block)
    # On a busy machine, the start of workers may take longer. `run` then shows the actor in second place, in short.
    found = without_figures(done([sys.executable, "-m", "ray_tracing_hooks", "summary", "before"], tmp_path))
    for block in (shown[0], readme):
        assert without_figures(block.partition("Findings\n")[2]) in found
    assert "is a bottleneck" not in printed[1]
    assert "bottleneck-actor Store N none gone" in printed[2]
    assert "bottleneck-actor Store N none gone" in without_figures(shown[2])
