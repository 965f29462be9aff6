"""Compiles the C code of the package for a wheel, where that is possible. Elsewhere the wheel is pure Python.

``RAY_TRACING_HOOKS_COMPILE=0`` leaves it out, and with ``=1`` the build fails where it cannot be compiled. ``CC``,
``CFLAGS`` and ``LDFLAGS`` are respected. The result uses the stable ABI of Python 3.10, so one wheel is for all later
versions.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULE = "ray_tracing_hooks._hotpath"
SOURCE = "ray_tracing_hooks/_hotpath_source"
FILE = "ray_tracing_hooks/_hotpath.abi3.so"
FLAGS = "-std=c99 -O2 -Wall -Wextra -fPIC -fvisibility=hidden -fstack-protector-strong -shared"


class Compile(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get("RAY_TRACING_HOOKS_COMPILE", "")
        if version == "editable" or wanted == "0":
            return
        self._folder = tempfile.TemporaryDirectory()
        target = Path(self._folder.name, Path(FILE).name)
        problem = unsuitable() or compiled(Path(self.root, SOURCE), target) or unusable(target)
        if not problem:
            build_data["force_include"][str(target)] = FILE
            build_data["pure_python"] = False
            build_data["tag"] = f"cp310-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        elif wanted == "1":
            raise RuntimeError(problem)
        else:
            self.app.display_warning(f"Without its compiled part, which is optional: {problem}")


def unsuitable() -> str:
    """Why this Python cannot have a compiled part; empty if it can."""
    if sys.platform != "linux" or sys.byteorder != "little" or sys.implementation.name != "cpython":
        return "it is for CPython on Linux, on little-endian machines"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "Python without the GIL has no stable ABI"
    return ""


def compiled(sources: Path, target: Path) -> str:
    """Compile into the file ``target``. What is wrong if that is impossible."""
    compiler = next(filter(None, map(_command, (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc"))), None)
    if compiler is None:
        return "there is no C compiler"
    headers = dict.fromkeys(sysconfig.get_path(name) for name in ("include", "platinclude"))
    if not any(Path(folder, "Python.h").exists() for folder in headers):
        return f"the headers of Python are not in {' or '.join(headers)}"
    command = [
        *compiler,
        *shlex.split(FLAGS),
        *(f"-I{folder}" for folder in headers),
        *shlex.split(os.environ.get("CFLAGS", "")),
        *map(str, sorted(sources.glob("*.c"))),
        *shlex.split(os.environ.get("LDFLAGS", "")),
        *("-o", str(target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{shlex.join(command)} failed: {done.stderr.strip()[-2000:]}" if done.returncode else ""


def _command(compiler: str | None) -> list[str] | None:
    """The words of a command, if it can be run."""
    words = shlex.split(compiler or "")
    return words if words and shutil.which(words[0]) else None


def unusable(target: Path) -> str:
    """Why the compiled module cannot be imported; empty if it can."""
    program = (
        "import sys; from importlib import machinery, util\n"
        "loader = machinery.ExtensionFileLoader(*sys.argv[1:])\n"
        "spec = util.spec_from_loader(sys.argv[1], loader)\n"
        "loader.exec_module(util.module_from_spec(spec))"
    )
    command = [sys.executable, "-c", program, MODULE, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"it cannot be imported: {done.stderr.strip()[-2000:]}" if done.returncode else ""
