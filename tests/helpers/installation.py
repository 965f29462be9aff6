"""Installs what is in a folder alone into empty environments, one for each extra, and uses it there.

    .venv/bin/python tests/helpers/installation.py dist 2.60.0 sbom

Beside the package and its dependencies, an environment has this version of Ray. A traced program runs there, and
something that needs the extra. The packages that come with the extra ``all`` are listed in the folder ``sbom``, in
CycloneDX's format.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = "ray-tracing-hooks"
PROGRAM = """\
import ray
from opentelemetry import trace


@ray.remote
def double(number):
    with trace.get_tracer(__name__).start_as_current_span("own"):
        return 2 * number


ray.init("local", num_cpus=2, include_dashboard=False, _tracing_startup_hook="ray_tracing_hooks:setup")
print(ray.get([double.remote(number) for number in range(4)]))
"""


class Environment:
    """An environment with nothing in it, not even pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "environment/bin"
        self.spans = folder / "spans"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.bin.parent], check=True)
        (folder / "program.py").write_text(PROGRAM)

    def install(self, *wanted: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        quiet = ("-qq", "--disable-pip-version-check", "--no-input")
        subprocess.run([*pip, "install", *quiet, *wanted], check=True, cwd=self.folder)
        subprocess.run([*pip, "check", *quiet], check=True, cwd=self.folder)

    def run(self, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """With these variables, and none of the caller's that change what is imported or recorded."""
        kept = {name: os.environ[name] for name in os.environ.keys() & {"LANG", "TMPDIR", "HOME"}}
        # Ray's sockets are there, and the path of one may have 107 bytes.
        ours = {"PATH": f"{self.bin}:/usr/bin:/bin", "RAY_TMPDIR": str(self.folder), "RAY_AUTH_MODE": "disabled"}
        return subprocess.run(
            [self.bin / command[0], *command[1:]],
            env={**kept, **ours, "RAY_TRACING_LOCAL_DIR": str(self.spans), **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def ran(self, *command: str, **variables: str) -> str:
        """Its output; it must succeed."""
        done = self.run(*command, **variables)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}\n{done.stderr}"
        return done.stdout


def jaeger(environment: Environment) -> str:
    """The program sends its spans to a socket, by a protocol of Jaeger that needs Thrift."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as agent:
        agent.bind(("localhost", 0))
        agent.settimeout(0)
        done = environment.run(
            *("python", "program.py"),
            RAY_TRACING_EXPORTERS="jaeger",
            RAY_TRACING_JAEGER_PROTOCOL="thrift-udp",
            OTEL_EXPORTER_JAEGER_AGENT_PORT=str(agent.getsockname()[1]),
        )
        received = b""
        with suppress(BlockingIOError):
            while True:
                received += agent.recv(65536)
        return "" if b"double" in received and b"own" in received else done.stderr


def insight(environment: Environment) -> str:
    done = environment.run(PACKAGE, "export", str(environment.spans), "--format", "parquet", "-o", "runs")
    return done.stderr if done.returncode else ""


def prometheus(environment: Environment) -> str:
    done = environment.run(PACKAGE, "config", RAY_TRACING_METRICS="1", RAY_TRACING_PROMETHEUS="127.0.0.1:9100")
    return done.stderr if done.returncode else ""


def gpu(environment: Environment) -> str:
    """What loads the driver of GPUs can be imported; machines without them have no such driver."""
    done = environment.run("python", "-c", "import pynvml")
    return done.stderr if done.returncode else ""


USES: dict[str, Callable[[Environment], str]] = {
    "jaeger": jaeger,
    "insight": insight,
    "prometheus": prometheus,
    "gpu": gpu,
}
"""By extra: something that needs it, which gives the problem where it is missing, and nothing where it works."""


def check(distribution: Path, extra: str, ray: str, bill: Path | None = None) -> None:
    """Use a distribution in an environment of its own, and write its bill of materials to the file ``bill``."""
    began = time.monotonic()
    version = distribution.name.removesuffix(".tar.gz").split("-")[1]
    folder = Path(tempfile.mkdtemp(prefix="new-"))
    try:
        environment = Environment(folder)
        environment.install(f"{distribution.absolute()}[{extra}]".removesuffix("[]"))
        if bill is not None:
            write_bill(environment, version, bill)
        environment.install(f"ray=={ray}")
        assert environment.ran(PACKAGE, "--version").split()[-1] == version
        assert "summary" in environment.ran("rth", "--help")
        assert "[0, 2, 4, 6]" in environment.ran("python", "program.py")
        tree = environment.ran(PACKAGE, "tree", str(environment.spans))
        assert all(text in tree for text in ("ray.driver", "double x4", "own x4", "13 spans")), tree
        compiled = "here it is in use" in environment.ran(PACKAGE, "config")
        assert compiled or distribution.name.endswith(("-none-any.whl", ".tar.gz")), "the compiled part is not in use"
        for name, use in USES.items():
            problem = use(environment)
            if extra in {name, "all"}:
                assert not problem, f"{name}: {problem}"
            else:
                assert problem, f"{name} works without the extra"
                assert name == "gpu" or f"{PACKAGE}[{name}]" in problem, problem
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{distribution.name}[{extra}]: works, {time.monotonic() - began:.0f} s".replace("[]", ""), flush=True)


def write_bill(environment: Environment, version: str, path: Path) -> None:
    """The packages of an environment with their versions and licenses."""
    path.parent.mkdir(exist_ok=True)
    options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--output-reproducible")
    program = Path(sys.prefix) / "release/bin/cyclonedx-py"  # as the Makefile installs it
    command = [str(program), "environment", *options, str(environment.bin / "python")]
    bill = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    # The program takes it from pyproject.toml, which does not have the version.
    bill["metadata"]["component"].update(version=version, purl=f"pkg:pypi/{PACKAGE}@{version}")
    path.write_text(json.dumps(bill, indent=2) + "\n")


def extras(wheel: Path) -> list[str]:
    """What its metadata offers."""
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (each for each in opened.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_bytes(opened.read(name)).get_all("Provides-Extra") or []


if __name__ == "__main__":
    dist, ray_version, bills = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    for path in sorted(dist.glob("*.whl")):
        assert set(extras(path)) == {*USES, "all"}
        for each in ("", *extras(path)):
            check(path, each, ray_version, bills / f"{PACKAGE}.cdx.json" if each == "all" else None)
    for path in sorted(dist.glob("*.tar.gz")):
        check(path, "", ray_version)
