"""What ``make test`` installs beside this environment's packages. Tests that need it are skipped where it is not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest


def needs(*names: str) -> pytest.MarkDecorator:
    """A mark for tests that use what .ci/beside.py installs by these names in this environment."""
    missing = [name for name in names if not _is_there(name)]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}, which .ci/beside.py installs")


def folder(name: str) -> str:
    """The folder of the environment with this name. Skips the test, or the module, where there is none."""
    if not _is_there(name):
        pytest.skip(f"needs {name}, which .ci/beside.py installs", allow_module_level=True)
    return str(Path(sys.prefix) / name)


def _is_there(name: str) -> bool:
    return (Path(sys.prefix) / name / "wanted.txt").exists()


def program(*names: str) -> str:
    """The path of the first of these programs that is installed. Skips the test where there is none."""
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        pytest.skip(f"needs {' or '.join(names)}")
    return found
