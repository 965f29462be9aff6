"""Every test starts from a clean environment and leaves nothing behind."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import ports
import psutil
import pytest
from xdist.scheduler import LoadScopeScheduling

from ray_tracing_hooks import _guard

# A shell has jobs in the background ignore it, and what they start as well. Some tests send it to what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: how long an example takes on a busy machine says nothing about the code. The same examples each time: who
# changes something else must not be the one who finds a new case. `--hypothesis-profile=search` looks for such cases.
hypothesis.settings.register_profile("ray_tracing_hooks", deadline=None, derandomize=True)
# `make quick` takes this one: other runs try more examples.
hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("search", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("ray_tracing_hooks")


_ports: list[str] = []


def pytest_configure() -> None:
    """The processes of this run share the file that says which port is next."""
    if ports.NEXT not in os.environ:
        handle, path = tempfile.mkstemp(prefix="rth-ports-")
        os.close(handle)
        os.environ[ports.NEXT] = path
        _ports.append(path)


def pytest_unconfigure() -> None:
    for path in _ports:
        os.environ.pop(ports.NEXT, None)
        os.unlink(path)


FOLDERS = ("ray", "backends", "browser", "deploy", "security", "insight", "unit")
"""By how long a file of theirs takes."""

LONGEST = (
    "ray/test_conformance.py",
    "ray/test_many_nodes.py",
    "ray/test_doctor.py",
    "ray/test_collect.py",
    "ray/test_train.py",
    "ray/test_tune.py",
    "ray/test_serve.py",
    "ray/test_client.py",
    "ray/test_mixed.py",
    "browser/test_page.py",
    "ray/test_unchanged.py",
    "ray/test_calls.py",
    "ray/test_files.py",
    "ray/test_rllib.py",
    "ray/test_serve_scenarios.py",
    "ray/test_frameworks.py",
    "ray/test_serve_mixed.py",
    "ray/test_context.py",
    "ray/test_endings.py",
    "ray/test_jobs.py",
    "ray/test_ids.py",
    "ray/test_other_rays.py",
    "ray/test_serve_protocols.py",
    "ray/test_serve_direct.py",
    "ray/test_bad_input.py",
    "ray/test_serve_routing.py",
    "ray/test_states.py",
    "ray/test_endings_of_shippers.py",
)
"""The files that take more than twenty seconds of processor time or of waiting, the longest first."""

EACH_ALONE = ("ray/test_conformance.py", "unit/test_ship.py")
"""Files whose tests share nothing that only they use: each test may run in another process than the one before."""

TOGETHER = {"ray/test_calls.py": "runs", "ray/test_files.py": "runs", "ray/test_unchanged.py": "runs"}
"""Files that look at the same runs of programs, by a name for these: they run in one process."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no process has a long file left when the others are done."""
    tests = Path(__file__).parent

    def rank(item: pytest.Item) -> tuple[int, int]:
        path = item.path.relative_to(tests)
        folder, file = path.parts[0], path.as_posix()
        if file in LONGEST:
            return -2, LONGEST.index(file)
        return FOLDERS.index(folder) if folder in FOLDERS else -1, 0

    items.sort(key=rank)


class _ByFile(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist comes without types
    """The tests of a file run in one process, since they share what its fixtures start."""

    def _split_scope(self, nodeid: str) -> str:
        file = "/".join(nodeid.partition("::")[0].split("/")[-2:])
        return nodeid if file in EACH_ALONE else TOGETHER.get(file, file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _ByFile(config, log)


def pytest_report_header() -> str:
    """The versions that decide what a failure means."""
    versions = [f"python {platform.python_version()}"]
    for package in ("ray-tracing-hooks", "ray", "opentelemetry-sdk"):
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    return ", ".join(versions)


@pytest.fixture(autouse=True)
def clean_environment() -> Iterator[None]:
    """No variable of the machine changes what a test sees, and none that a test sets outlives it."""
    before = dict(os.environ)
    for variable in before:
        if variable.startswith(("RAY_TRACING_", "OTEL_")):
            del os.environ[variable]
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(autouse=True)
def reports() -> Iterator[list[str]]:
    """What the package reported to the user in this test."""
    heard: list[str] = []
    _guard.forget_reports()
    _guard.set_reporter(heard.append)
    yield heard
    _guard.forget_reports()
    _guard.set_reporter(None)
    _guard.set_strict(False)


@pytest.fixture(autouse=True)
def no_child_left_behind() -> Iterator[None]:
    """A test waits for the processes that it starts. (Python's resource tracker ends with the test run.)"""
    before = _children()
    yield
    started = []
    for pid in _children() - before:
        with contextlib.suppress(psutil.NoSuchProcess):
            started.append(psutil.Process(pid))
    _, alive = psutil.wait_procs([child for child in started if not _is_resource_tracker(child)], timeout=30)
    assert not alive, f"the test left processes behind: {alive}"


def _children() -> set[int]:
    """The process ids of our children, listed by the kernel for each thread: psutil looks at every process there is."""
    found: set[int] = set()
    # The main thread comes last, since it inherits the children of a thread that ends meanwhile.
    for thread in sorted(map(int, os.listdir("/proc/self/task")), reverse=True):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
        except (FileNotFoundError, ProcessLookupError):
            if thread == os.getpid():
                raise
    return found


def _is_resource_tracker(process: psutil.Process) -> bool:
    try:
        return any("resource_tracker" in part for part in process.cmdline())
    except psutil.Error:
        return False
