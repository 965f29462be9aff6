"""Installs what tests need beside the packages of this environment: folders of packages, and programs of the system.

    .venv/bin/python .ci/beside.py all
    .venv/bin/python .ci/beside.py data node

What is there stays: ``wanted.txt`` in a folder lists what it was made of. Versions are in pyproject.toml, in the groups
of the same names. A test that misses something is skipped, and says what.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

HERE = Path(sys.prefix)
GROUPS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["dependency-groups"]

OF_RAY = {
    "extras": ("default", "serve"),
    "data": ("data",),
    "train": ("data", "train", "tune", "rllib"),
    "notebook": (),
    "agents": (),
}
"""Folders with the dependencies of these extras of Ray, and of the group of their name, since it behaves differently
with pyarrow, and starts more slowly with the others."""

ALONE = ("definitions", "skywalking", "viewers", "fuzz", "store")
"""Folders with packages whose dependencies are too old, or in this environment."""

PROGRAMS = {
    "browser": (("chromium", "chromium-browser", "google-chrome"), "chromium"),
    "node": (("node",), "nodejs"),
    "npm": (("npm",), "npm"),
    "ip": (("ip",), "iproute2"),
    "redis": (("redis-server",), "redis-server"),
}
"""Programs, any of which is enough, and the package of Debian that has them."""

_CAPS = {
    "fastapi": ("2.54", "<0.117"),  # its applications cannot be pickled by Ray before
    "protobuf": ("2.55", "<7"),  # the messages of Serve before lack what it asks for
}
"""By package: the first Ray whose Serve works with its newest version, and the version that an older one works with."""


def install(name: str) -> None:
    """Install a row of one of these tables, or what has a function below."""
    if name in PROGRAMS:
        programs, package = PROGRAMS[name]
        if not any(map(shutil.which, programs)):
            _apt(package)
    elif name in OF_RAY:
        wanted = sorted({*_of_ray(OF_RAY[name]), *GROUPS.get(name, ())})
        constraints = HERE / f".versions-{name}.txt"
        constraints.write_text(_versions(wanted))
        _folder(name, wanted, "--constraint", str(constraints))
    elif name in ALONE:
        _folder(name, GROUPS[name], "--no-deps")
    else:
        {"peers": _peers, "agent": _agent, "promtool": _promtool, "llm": _llm}[name]()


def _of_ray(extras: tuple[str, ...]) -> Iterator[str]:
    """What these extras of the installed Ray ask for. protobuf is in this environment; an older Serve caps it."""
    for requirement in map(Requirement, requires("ray") or ()):
        marker = requirement.marker
        if requirement.name != "protobuf" and marker and any(marker.evaluate({"extra": extra}) for extra in extras):
            yield f"{requirement.name}[{','.join(requirement.extras)}]{requirement.specifier}".replace("[]", "")
    if "serve" in extras:
        yield from (name + cap for name, (first, cap) in _CAPS.items() if Version(version("ray")) < Version(first))


def _versions(wanted: list[str]) -> str:
    """The versions of this environment, which a folder has too."""
    command = [sys.executable, "-m", "pip", "freeze", "--exclude-editable", "--exclude", "ray-tracing-hooks"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines(keepends=True)
    capped = {line.partition("<")[0] for line in wanted if line in {name + cap for name, (_, cap) in _CAPS.items()}}
    return "".join(line for line in lines if line.partition("==")[0] not in capped)


def _folder(name: str, wanted: list[str], *options: str) -> None:
    if _begin(name, wanted):
        _pip("--no-compile", "--target", str(HERE / name), *options, *wanted)
        _end(name, wanted)


def _peers() -> None:
    """Backends in their own environment. The collector is linked with Python's library, which some builds lack."""
    wanted = GROUPS["peers"]
    if _begin("peers", wanted):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(HERE / "peers")], check=True)
        _pip(*wanted, python=HERE / "peers/bin/python")
        (rotel,) = (HERE / "peers/lib").glob("python3.*/site-packages/rotel/rotel-agent")
        if subprocess.run([rotel, "--version"], check=False, capture_output=True).returncode:
            _apt(f"libpython{sys.version_info[0]}.{sys.version_info[1]}")
        _end("peers", wanted)


def _agent() -> None:
    """SkyWalking's agent for Node."""
    wanted = ["skywalking-backend-js@0.9.0"]
    if shutil.which("npm") and _begin("agent", wanted):
        quiet = ("--omit=optional", "--no-audit", "--no-fund", "--loglevel=error")
        subprocess.run(["npm", "install", "--prefix", HERE / "agent", *quiet, *wanted], check=True, stdout=2)
        _end("agent", wanted)


def _promtool() -> None:
    """Prometheus' own tool, which evaluates the example alerts: unpacked, since its package starts a server."""
    if not shutil.which("promtool") and _begin("promtool", ["prometheus"]):
        command = "apt-get update -qq && apt-get download -qq prometheus && dpkg -x prometheus_*.deb ."
        if subprocess.run(command, shell=True, check=False, capture_output=True, cwd=HERE / "promtool").returncode:
            print("==> No promtool: Debian's package prometheus cannot be loaded", flush=True)
        _end("promtool", ["prometheus"])


def _llm() -> None:
    """VLLM for the CPU, in its own environment of 3.5 GB. By uv, which can leave packages out."""
    wanted = [*GROUPS["llm"], f"ray[data,serve]=={version('ray')}"]
    if _begin("llm", wanted):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(HERE / "llm")], check=True)
        left_out = HERE / "llm/left-out.txt"
        left_out.write_text("".join(f'{name}; sys_platform == "never"\n' for name in _FOR_GPUS))
        python = ("--python", str(HERE / "llm/bin/python"), "--override", str(left_out))
        _pip("uv")
        places = [place for each in _FIND_LINKS for place in ("--find-links", each)]
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", *python, *places, *wanted]
        subprocess.run(command, check=True)
        _end("llm", wanted)


_FOR_GPUS = ("torchvision", "torchaudio", "torchcodec")
"""Packages that vLLM asks for, and that fail to be imported beside torch for the CPU. No test needs them."""

_FIND_LINKS = os.environ.get("PIP_FIND_LINKS", "").split()
"""Where pip finds packages that no index has."""


def _begin(name: str, wanted: list[str]) -> bool:
    """Whether the folder is to be made, which is empty then."""
    list_of_it = HERE / name / "wanted.txt"
    if list_of_it.exists() and set(list_of_it.read_text().split()) == set(wanted):
        return False
    print(f"==> Installing {name}: {' '.join(wanted)}", flush=True)
    shutil.rmtree(HERE / name, ignore_errors=True)
    (HERE / name).mkdir()
    return True


def _end(name: str, wanted: list[str]) -> None:
    (HERE / name / "wanted.txt").write_text("".join(f"{line}\n" for line in wanted))


def _pip(*arguments: str, python: Path | str = sys.executable) -> None:
    pip = ("-m", "pip", "--python", str(python), "install", "-qq", "--disable-pip-version-check", "--no-input")
    subprocess.run([sys.executable, *pip, *arguments], check=True)


def _apt(package: str) -> None:
    print(f"==> Installing {package}", flush=True)
    command = f"apt-get update -qq && apt-get install -qq -y {package} > /dev/null"
    if subprocess.run(command, shell=True, check=False).returncode:
        print(f"==> {package} cannot be installed: tests that need it are skipped", flush=True)


# Without `llm`, which is large: it is installed by its name.
ALL = (*PROGRAMS, *OF_RAY, "definitions", "skywalking", "viewers", "store", "peers", "agent", "promtool")

if __name__ == "__main__":
    for each in ALL if sys.argv[1:] == ["all"] else sys.argv[1:]:
        install(each)
