"""Errors and their texts are what they would be without tracing: no frame of ours is in a traceback.

Wraps ``format_error_message`` (Ray 2.60 ``_private/utils.py``), which is given the traceback of a task's error that the
user will read in ``RayTaskError``. Where a wrapper is called, :func:`hide_frame` takes it out of the traceback.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from ray_tracing_hooks._patching import Patches

_FOLDER = os.path.dirname(os.path.abspath(__file__))
# A frame is its "File" line and the indented source and caret lines below it.
_FRAME = rf'^  File "{re.escape(_FOLDER + os.sep)}[^"\n]*", line \d+, in .*\n(?:    .*\n)*'


def patch(patches: Patches) -> bool:
    """Wrap the formatting of errors; False if this Ray has no such place."""
    from ray._private import utils  # noqa: PLC0415

    return patches.wrap(utils, "format_error_message", _format_error_message)


def _format_error_message(original: Callable[..., str]) -> Callable[..., str]:
    def format_error_message(exception_message: str, *args: Any, **kwargs: Any) -> str:
        return original(without_our_frames(exception_message), *args, **kwargs)

    return format_error_message


def hide_frame(error: BaseException) -> None:
    """Take the caller's frame out of the traceback of the error that it has caught, and raises on by a bare ``raise``.

    Before Python 3.11 that puts the frame back.
    """
    traceback = error.__traceback__
    if traceback is not None:
        error.__traceback__ = traceback.tb_next


def without_our_frames(text: str) -> str:
    """A formatted traceback without the frames of this folder."""
    return re.sub(_FRAME, "", text, flags=re.MULTILINE) if _FOLDER in text else text
