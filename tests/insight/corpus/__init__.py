"""Programs that are slow for a known reason, or for none: what the analysis is held to.

Each program is a short function in ``programs/``, registered by a decorator with what the summary has to say of it and
must not say. It runs on Ray, measures what its cause costs, and can be run *mended*: without the cause. ``recorded/``
has the spans of both runs, and what they measured. ``tests/insight/test_corpus.py`` compares.

    cd tests/insight && ../../.venv/bin/python -m corpus      # its commands

A new program: write it in the file of its subject, record it (``record NAME``), and look at ``table NAME``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SUBJECTS = (
    "core",
    "waits",
    "actors",
    "places",
    "objects",
    "threads",
    "data",
    "serve",
    "train",
    "tune",
    "rollouts",
    "healthy",
)
"""The files in ``programs/``."""

FACTOR = 1.5
"""How far a cost that the analysis names may be from the measured one, in both directions."""

DRIVER = "the driver"
"""For ``on_path``: the code of the driver itself."""

QUIET = 0.1
"""Findings that cost less of the run than this are not considered."""


def spend(seconds: float) -> float:
    """Be at work for so long. Returns for how long it really was, which is more on a busy machine."""
    begun = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - begun


def burn(seconds: float) -> float:
    """Compute in Python for so long."""
    begun = time.perf_counter()
    while time.perf_counter() - begun < seconds:
        sum(range(1000))
    return time.perf_counter() - begun


@dataclass
class Run:
    """What a program is told, and what it measures."""

    mended: bool = False
    costs: dict[int, float] = field(default_factory=dict)
    """By the number of the cause: what it cost, in seconds."""
    start: float = 0.0
    """Seconds that the run took to start and end a library, around what is planted; no part of its time."""

    def seconds(self, usual: float, mended: float | None = None) -> float:
        """A duration of the program; another one where it is mended."""
        return mended if self.mended and mended is not None else usual

    def times(self, usual: int, mended: int | None = None) -> int:
        """A number of calls."""
        return mended if self.mended and mended is not None else usual

    def cost(self, seconds: float, cause: int = 0) -> None:
        """Add to what a cause has cost so far: time on the way to the end of the run."""
        self.costs[cause] = self.costs.get(cause, 0.0) + seconds

    @contextmanager
    def costing(self, cause: int = 0, *, less: float = 0.0) -> Iterator[None]:
        """The time of a block is the cost of a cause, but for ``less`` seconds that it would take anyway."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.cost(max(0.0, time.perf_counter() - begun - less), cause)


@dataclass(frozen=True)
class Program:
    """A program, and what the summary has to say of it."""

    name: str
    subject: str
    cause: str
    function: Callable[[Run], object]
    finds: tuple[tuple[str, ...], ...] = ()
    """For each cause, the kinds of finding that name it. With one cause, the first finding has to be one of them; with
    two, the first two are."""
    on_path: str = ""
    """If nothing is wrong but that a function is slow: the one that comes first on the critical path."""
    says: tuple[str, ...] = ()
    """Words that the first finding has."""
    beside: tuple[str, ...] = ()
    """Kinds of findings that are true as well, but not the answer. Any other one would be false."""
    never: tuple[str, ...] = ()
    """Words that the summary must not have, since they are not true."""
    at_most: dict[str, float] = field(default_factory=dict)
    """By kind of time, the largest share of the run that it can truly have had, in the split and on the path."""
    cluster: dict[str, Any] = field(default_factory=dict)
    """Arguments of the head node; ``nodes`` has those of others."""
    library: str = ""
    """The folder in ``.venv`` with what a library of Ray needs: ``data``, ``extras`` or ``train``."""
    parts: str = "+get,wait"
    """``RAY_TRACING_RAY``."""
    states: bool = False
    """Whether Ray's task states are recorded too."""
    settings: dict[str, str] = field(default_factory=dict)
    """More variables of the environment."""

    @property
    def is_healthy(self) -> bool:
        return not self.finds and not self.on_path


PROGRAMS: dict[str, Program] = {}
"""By name."""

Function = Callable[[Run], object]


def planted(*finds: str | tuple[str, ...], **expected: Any) -> Callable[[Function], Function]:  # fields of Program
    """Register a program whose causes these kinds of findings name; ``on_path`` if no finding has to."""

    def register(function: Function) -> Function:
        kinds = tuple((each,) if isinstance(each, str) else each for each in finds)
        subject = str(function.__globals__["__file__"]).rpartition("/")[2].removesuffix(".py")
        cause = " ".join((function.__doc__ or "").split()).rstrip(".")
        name = function.__name__
        PROGRAMS[name] = Program(name, subject, cause, function, kinds, **expected)
        return function

    return register


healthy = planted
"""Without any kind: nothing is wrong, so no finding may cost more than :data:`QUIET`."""


def load_all() -> dict[str, Program]:
    """All programs, by name."""
    from importlib import import_module

    for subject in SUBJECTS:
        import_module(f"corpus.programs.{subject}")
    return PROGRAMS
