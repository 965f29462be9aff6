"""Environments of Python that share the packages of this one, but for some."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

PACKAGE = "ray_tracing_hooks"


def without_package(folder: Path) -> str:
    """The Python of an environment that has everything but this package."""
    packages = _make(folder)
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith(PACKAGE):
            (packages / each.name).symlink_to(each)
    return str(folder / "bin" / "python")


def with_version(folder: Path, version: str) -> str:
    """The Python of an environment that has this package in another version."""
    python = without_package(folder)
    packages = _packages(folder)
    for each in Path(sysconfig.get_path("purelib")).glob(f"{PACKAGE}*"):
        name = re.sub(r"-[^-]+\.dist-info", f"-{version}.dist-info", each.name)
        shutil.copytree(each, packages / name)
    shutil.rmtree(packages / PACKAGE / "__pycache__", ignore_errors=True)
    (packages / PACKAGE / "_version.py").write_text(f'__version__ = "{version}"\n')
    return python


def _make(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return _packages(folder)


def _packages(folder: Path) -> Path:
    (found,) = (folder / "lib").glob("python3.*/site-packages")
    return found
