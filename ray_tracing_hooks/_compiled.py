"""The compiled part of recording and delivery (the folder ``_hotpath_source``), or what stands in for it.

This is the one place that chooses. The bases, and what :data:`use` makes, do the common case in C, and hand everything
else to the Python code beside them, which is complete. Where an installation has no compiled part, or with
``RAY_TRACING_COMPILED=0``, Python does it all: the bases call it, and ``use`` makes None. The variable counts when this
module is imported; a value in a settings file comes later (:meth:`CompiledPart.allow`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from ray_tracing_hooks._settings.values import BOOLEAN

__all__ = ["BeginningBase", "RecorderBase", "SpanBase", "WriterBase", "hotpath", "now_ns", "use"]

VARIABLE = "RAY_TRACING_COMPILED"


def _is_switched_off() -> bool:
    try:
        return not BOOLEAN.read(os.environ[VARIABLE])
    except (KeyError, ValueError):  # an invalid value is reported with all others
        return False


_problem = ""

if TYPE_CHECKING:
    from ray_tracing_hooks import _hotpath as hotpath
    from ray_tracing_hooks._hotpath import BeginningBase, RecorderBase, SpanBase, WriterBase, now_ns
else:
    hotpath = None
    if not _is_switched_off():
        try:
            hotpath = import_module("ray_tracing_hooks._hotpath")
        except ModuleNotFoundError:
            pass  # this installation is pure Python
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, Python does the same
            _problem = f"{type(error).__name__}: {error}"

    if hotpath is not None:
        from ray_tracing_hooks._hotpath import BeginningBase, RecorderBase, SpanBase, WriterBase, now_ns
    else:

        class _InPython:
            """Has the methods of the compiled class in Python, where their names have an underscore before them."""

            __slots__ = ()

            def __init_subclass__(cls, methods: tuple[str, ...] = ()) -> None:
                cls._methods = methods or cls._methods
                for name in cls._methods:
                    if f"_{name}" in vars(cls):
                        setattr(cls, name, vars(cls)[f"_{name}"])

        class WriterBase(_InPython, methods=("span", "start")):
            __slots__ = ()

        class RecorderBase:
            __slots__ = ()

        class SpanBase(_InPython, methods=("end",)):
            __slots__ = (
                *("_added", "_context", "_head", "_recorder", "end_time"),
                *("start_time", "template", "trace_flags", "trace_state"),
            )

        class BeginningBase(_InPython, methods=("begin",)):
            __slots__ = ()

        now_ns = partial(time.clock_gettime_ns, time.CLOCK_REALTIME)


def _nothing(*_arguments: object, **_named: object) -> None:
    """Python does it."""


Nothing = Callable[..., None]


class CompiledPart:
    """Whether the compiled part is in use in this process, and what it makes: None where it is not in use.

    Attributes:
        is_on: Whether what is made from now on uses it.
        problem: Why it could not be imported, where it is installed; else empty.
    """

    def __init__(self) -> None:
        self.is_loaded = bool(hotpath)
        self.problem = _problem
        self.allow(True)

    def allow(self, allowed: bool) -> None:
        """Use it from now on if it is ``allowed``, and could be imported."""
        self.is_on = on = allowed and self.is_loaded
        self.execution: type[hotpath.Execution] | Nothing = hotpath.Execution if on else _nothing
        self.submissions: type[hotpath.Submissions] | Nothing = hotpath.Submissions if on else _nothing
        self.method: type[hotpath.Method] | Nothing = hotpath.Method if on else _nothing
        self.good_records: Callable[..., int | None] = hotpath.good_records if on else _nothing

    def described(self) -> str:
        """Whether it is in use, in words; and if not, why."""
        if self.is_on:
            return "in use"
        if self.problem:
            return f"installed, but cannot be loaded: {self.problem}"
        if self.is_loaded or _is_switched_off():
            return "switched off"
        return "not installed, since this is the package in pure Python"


use = CompiledPart()
