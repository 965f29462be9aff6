"""Keeps what a user has typed out of the cluster: Ray stores the command line of each driver in its table of jobs.

Whoever may use the cluster sees it there, also after the command has ended, and values of settings may be secrets.
Wraps, in this process only, ``get_entrypoint_name`` (Ray 2.40 to 2.60, ``_private/utils.py``).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ray_tracing_hooks._patching import Patches

_NAME = re.compile(r"(-{0,2}[A-Za-z][\w-]*)(=.*)?", re.ASCII | re.DOTALL)
"""An option, or the name of a setting, perhaps with its value."""

_LEFT_OUT = "..."


@contextmanager
def entrypoint_without_values() -> Iterator[None]:
    """In the table of jobs, drivers that connect within this block have the command line without values."""
    from ray._private import utils  # noqa: PLC0415  only where a cluster is asked

    patches = Patches()
    patches.wrap(utils, "get_entrypoint_name", _command)
    try:
        yield
    finally:
        patches.undo()


def without_values(words: Sequence[str]) -> str:
    """The command line of these words; of all but the first, the command, names are left."""
    return " ".join(("ray-tracing-hooks", *words[:1], *map(_name, words[1:])))


def _command(_original: Callable[..., Any]) -> Callable[..., str]:
    def command(*_arguments: Any, **_options: Any) -> str:
        """Takes the place of a function of Ray."""
        return without_values(sys.argv[1:])

    return command


def _name(word: str) -> str:
    found = _NAME.fullmatch(word)
    if found is not None and found[2]:
        return f"{found[1]}={_LEFT_OUT}"
    return word if found is not None and word.startswith("-") else _LEFT_OUT
