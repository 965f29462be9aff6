"""``ray-tracing-hooks demo`` where it cannot run. Where it can, see ``tests/ray/test_demo.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ray_tracing_hooks._cli import demo, main


def test_it_says_that_it_needs_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda _name: None)
    done = CliRunner().invoke(main, ["demo", "--output", str(tmp_path / "new")])
    assert done.exit_code == 1
    assert "has no Ray: run pip install ray" in done.output
    assert not (tmp_path / "new").exists()


def test_it_shows_why_its_program_failed(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("raise SystemExit('no room in /dev/shm')")
    done = subprocess.run(
        [sys.executable, "-m", "ray_tracing_hooks", "demo", "--output", str(tmp_path / "new")],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("no room in /dev/shm\nError: ")
    assert "slow.py ended with 1" in done.stderr


def test_it_overwrites_nothing_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("my own work")
    done = CliRunner().invoke(main, ["demo", "--output", str(tmp_path)])
    assert done.exit_code != 0
    assert "report.html' exists" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_an_empty_name_of_its_folder_is_wrong_use() -> None:
    result = CliRunner().invoke(main, ["demo", "--output", ""])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "it is empty: name a folder" in result.stderr
