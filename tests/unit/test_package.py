"""What is installed, and what importing it costs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ray_tracing_hooks

ROOT = Path(__file__).parents[2]
BENCHMARKS = re.findall(r"(\w+\.py)", re.findall("BENCHMARKS [?]= .*", (ROOT / "Makefile").read_text())[0])


def test_all_names_what_is_public() -> None:
    """`__all__` holds every public name of the package, and nothing that is not there."""
    public = {
        name
        for name, value in vars(ray_tracing_hooks).items()
        if not name.startswith("_") and not isinstance(value, ModuleType) and name != "annotations"
    }
    assert set(ray_tracing_hooks.__all__) - {"__version__"} == public


def test_the_version_is_that_of_the_distribution() -> None:
    """There is one place for the version."""
    assert ray_tracing_hooks.__version__ == importlib.metadata.version("ray-tracing-hooks")


def test_the_wheel_tells_type_checkers_that_it_is_typed() -> None:
    """The installed distribution holds py.typed and the license."""
    files = {str(file) for file in importlib.metadata.files("ray-tracing-hooks") or ()}
    assert "ray_tracing_hooks/py.typed" in files
    assert any(file.endswith("LICENSE") for file in files)


def test_the_tests_run_against_the_installed_package() -> None:
    """Not against the checkout, which Ray's workers would not see."""
    (init,) = (
        file
        for file in importlib.metadata.files("ray-tracing-hooks") or ()
        if str(file) == "ray_tracing_hooks/__init__.py"
    )
    assert str(init.locate()) == ray_tracing_hooks.__file__


@pytest.mark.slow(older_rays=True)  # each imports much
@pytest.mark.parametrize("name", [each for each in BENCHMARKS if each != "instructions.py"])  # it has no options
def test_a_benchmark_finds_what_it_imports(name: str, tmp_path: Path) -> None:
    """From any folder, and without help of the tests."""
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, str(ROOT / "tests/benchmarks" / name), "--help"]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
