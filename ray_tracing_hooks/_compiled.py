"""The compiled part of recording and delivery (the folder ``_hotpath_source``), or what stands in for it.

Where it is in use, the classes that inherit from these bases, and what is made of the others, do the common case in C,
and hand everything else to the Python code beside them, which is complete. Where an installation has no compiled part,
or with ``RAY_TRACING_COMPILED=0``, Python does it all. The variable counts when this module is imported; a value in a
settings file comes later (:meth:`Use.allow`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ray_tracing_hooks._values import BOOLEAN

__all__ = [
    "BeginningBase",
    "CallJson",
    "Execution",
    "Executor",
    "Method",
    "Passing",
    "RecorderBase",
    "SpanBase",
    "Starting",
    "Submissions",
    "WriterBase",
    "good_records",
    "now_ns",
    "use",
]

VARIABLE = "RAY_TRACING_COMPILED"


class Use:
    """Whether the compiled part is in use in this process.

    Attributes:
        is_loaded: Whether it could be imported.
        is_on: Whether what is made from now on uses it.
        problem: Why it could not be imported, where it is installed; else empty.
    """

    def __init__(self) -> None:
        self.is_loaded = self.is_on = False
        self.problem = ""

    def allow(self, allowed: bool) -> None:
        """Use it from now on if it is ``allowed``, and could be imported."""
        self.is_on = allowed and self.is_loaded

    def described(self) -> str:
        """Whether it is in use, in words; and if not, why."""
        if self.is_on:
            return "in use"
        if self.problem:
            return f"installed, but cannot be loaded: {self.problem}"
        if self.is_loaded or _is_switched_off():
            return "switched off"
        return "not installed, since this is the package in pure Python"


use = Use()


def _is_switched_off() -> bool:
    try:
        return not BOOLEAN.read(os.environ[VARIABLE])
    except (KeyError, ValueError):  # an invalid value is reported with all others
        return False


if TYPE_CHECKING:
    from ray_tracing_hooks._hotpath import (
        BeginningBase,
        CallJson,
        Execution,
        Executor,
        Method,
        Passing,
        RecorderBase,
        SpanBase,
        Starting,
        Submissions,
        WriterBase,
        good_records,
        now_ns,
    )
else:

    class WriterBase:
        """Adds nothing."""

    class RecorderBase:
        """Adds nothing."""

    class SpanBase:
        """Has the attributes of a span."""

        __slots__ = (
            "_added",
            "_context",
            "_head",
            "_recorder",
            "end_time",
            "start_time",
            "template",
            "trace_flags",
            "trace_state",
        )

    class BeginningBase:
        """Adds nothing."""

    class Execution:
        """Is never made."""

    class Executor:
        """Is never made."""

    class Submissions:
        """Is never made."""

    class Method:
        """Is never made."""

    class Passing:
        """Is never made."""

    class Starting:
        """Is never made."""

    class CallJson:
        """Is never made."""

    def good_records() -> None:
        """Is never called."""

    def now_ns() -> None:
        """Is never called."""

    if not _is_switched_off():
        try:
            from ray_tracing_hooks._hotpath import (
                BeginningBase,
                CallJson,
                Execution,
                Executor,
                Method,
                Passing,
                RecorderBase,
                SpanBase,
                Starting,
                Submissions,
                WriterBase,
                good_records,
                now_ns,
            )
        except ModuleNotFoundError:
            pass  # this installation is pure Python
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, Python does the same
            use.problem = f"{type(error).__name__}: {error}"
        else:
            use.is_loaded = use.is_on = True
