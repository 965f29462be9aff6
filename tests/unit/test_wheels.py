"""A wheel has the compiled part where it can be compiled, and is pure Python elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = "ray_tracing_hooks/_hotpath.abi3.so"

needs_compiler = pytest.mark.skipif(
    not shutil.which("cc") or not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="needs a C compiler and Python's headers",
)


def build(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = {name: value for name, value in os.environ.items() if name not in {"CC", "LDFLAGS"}}
    environment |= {"CFLAGS": "-O0", **variables}  # the compiler takes a third of the time
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


def built(folder: Path) -> tuple[str, set[str]]:
    """The tag and the files of the only wheel."""
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return wheel.stem.split("-", 2)[2], set(opened.namelist())


@needs_compiler
def test_one_wheel_is_for_all_versions_of_python(tmp_path: Path) -> None:
    done = build(tmp_path, RAY_TRACING_HOOKS_COMPILE="1")
    assert done.returncode == 0, done.stderr
    tag, files = built(tmp_path)
    assert tag.startswith("cp310-abi3-linux_")
    assert COMPILED in files
    assert not [file for file in files if file.endswith((".c", ".h"))]


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"RAY_TRACING_HOOKS_COMPILE": "0"}, ""),
        ({"PATH": "/nowhere"}, "there is no C compiler"),
        ({"CC": "false"}, "failed"),
        ({"CFLAGS": "-O0 -DPy_LIMITED_API=nonsense"}, "failed"),
        ({"CFLAGS": "-O0 -DPyInit__hotpath=other"}, "cannot be imported"),
    ],
    ids=["not wanted", "no compiler", "a compiler that fails", "an error", "a module that cannot be imported"],
)
def test_a_wheel_is_pure_python_where_nothing_is_compiled(
    variables: dict[str, str], problem: str, tmp_path: Path
) -> None:
    """Which is said, and is no error unless the compiled part was asked for."""
    if {"CC", "CFLAGS"} & variables.keys() and needs_compiler.args[0]:
        pytest.skip(needs_compiler.kwargs["reason"])
    done = build(tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    tag, files = built(tmp_path)
    assert tag == "py3-none-any"
    assert COMPILED not in files
    said = done.stdout + done.stderr
    assert ("compiled part" in said) == bool(problem)
    assert problem in said
    if "PATH" in variables:  # whatever the problem is
        asked = build(tmp_path / "asked", **variables, RAY_TRACING_HOOKS_COMPILE="1")
        assert asked.returncode
        assert problem in asked.stderr
        assert not (tmp_path / "asked").exists() or not list((tmp_path / "asked").glob("*.whl"))
