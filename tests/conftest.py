"""Every test starts from a clean environment and leaves nothing behind."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import ports
import psutil
import pytest
from installed import folder as installed

from ray_tracing_hooks._safety import guard

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is there once the tests are collected stays, so no garbage collection looks at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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


FOLDERS = ("ray", "backends", "browser", "deploy", "security", "javascript", "insight", "unit")
"""By how long a file of theirs takes. In those before ``security``, tests wait for other processes most of the time."""

LONGEST = (
    "browser/test_page.py",
    "ray/test_many_nodes.py",
    "ray/test_data.py",
    "ray/test_calls.py",
    "ray/test_conformance.py",
    "ray/test_doctor.py",
    "ray/test_collect.py",
    "ray/test_train.py",
    "ray/test_tune.py",
    "ray/test_serve.py",
    "ray/test_client.py",
    "ray/test_mixed.py",
    "insight/test_larger_than_memory.py",
    "insight/test_corpus.py",
    "unit/test_bridge.py",
    "unit/test_reentrancy.py",
    "unit/test_compiled.py",
)
"""The longest files, the longest first; and the same of those that compute."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file run in one process, since they share what its fixtures start, unless they have the mark
    ``apart``, or its file is in a group with others.

    What waits and what computes alternate, so that no core is idle while all processes wait. The last quarter of what
    computes is left for the end, and of both, what takes long begins first: no process has a long file left when the
    others are done.
    """
    above = len(str(Path(__file__).parent)) + 1
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not item.get_closest_marker("apart") and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(str(item.path)[above:]))
        mark = item.get_closest_marker("xdist_group")
        groups.setdefault(mark.args[0] if mark else item.nodeid, []).append(item)

    def rank(group: list[pytest.Item]) -> tuple[int, int]:
        file = str(group[0].path)[above:]
        return (-1, LONGEST.index(file)) if file in LONGEST else (FOLDERS.index(file.partition("/")[0]), 0)

    kinds: dict[str, list[list[pytest.Item]]] = {"cluster": [], "apart": [], "computes": []}
    for group in sorted(groups.values(), key=rank):
        is_cluster = FOLDERS.index(str(group[0].path)[above:].partition("/")[0]) < FOLDERS.index("security")
        is_apart = group[0].get_closest_marker("apart") is not None
        kinds["cluster" if is_cluster else "apart" if is_apart else "computes"].append(group)
    places = [
        (number / len(found) * (1 if kind == "computes" else 3 / 4), group)
        for kind, found in kinds.items()
        for number, group in enumerate(found)
    ]
    items[:] = [item for _, group in sorted(places, key=lambda place: place[0]) for item in group]


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
    for variable in os.environ.keys() - before:
        del os.environ[variable]
    os.environ.update({name: value for name, value in before.items() if os.environ.get(name) != value})


@pytest.fixture(autouse=True)
def reports() -> Iterator[list[str]]:
    """What the package reported to the user in this test."""
    heard: list[str] = []
    guard.forget_reports()
    guard.set_reporter(heard.append)
    yield heard
    guard.forget_reports()
    guard.set_reporter(None)
    guard.set_strict(False)


@pytest.fixture(scope="module")
def packages() -> Iterator[None]:
    """Those that read and write Parquet, which other tests run without."""
    added = [installed("data"), installed("store")]
    sys.path += added
    yield
    sys.path[:] = [path for path in sys.path if path not in added]


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
