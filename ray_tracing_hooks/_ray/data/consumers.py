"""Which method of Ray Data the program called, since many of them end in the same code."""

from __future__ import annotations

from types import FrameType

_LIBRARY, _OURS = "ray.data", f"{__name__.partition('.')[0]}."

_DECORATORS = "ray.data.exceptions"
"""The module whose decorators are around methods of any name (Ray 2.60 ``omit_traceback_stdout``)."""

_KNOWN_AS = {"start_epoch": "streaming_split", "gen_epochs": "streaming_split"}
"""What the program knows by another name."""


def consumer_in(frame: FrameType | None) -> str:
    """The outermost public function of Ray Data in a stack, without what called that; empty if there is none."""
    found = ""
    while frame is not None:
        module = frame.f_globals.get("__name__")
        module = module if isinstance(module, str) else ""
        if module.startswith(_LIBRARY):
            name = frame.f_code.co_name
            if module != _DECORATORS and name.isidentifier() and not name.startswith("_"):
                found = _KNOWN_AS.get(name, name)
        elif found and not module.startswith(_OURS):
            break
        frame = frame.f_back
    return found
