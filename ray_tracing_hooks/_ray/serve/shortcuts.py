"""Work that Serve does at every request and that can be done with less: it gives back some of what tracing takes.

As :mod:`ray_tracing_hooks._ray.shortcuts` does for calls, it leaves as it is what this Ray has not, or has otherwise:

- A request gets three random ids (Ray 2.60 ``serve/_private/utils.py``, ``generate_request_id``). Serve draws the bits
  and makes a ``uuid.UUID`` of them for its text alone.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from ray_tracing_hooks._patching import Patches

MODULE = "ray.serve._private.utils"

_NAMES = ("str", "uuid", "UUID", "random", "getrandbits")
"""What the code of ``generate_request_id`` names where it is the one that we know."""

_VERSION_4 = (0x8000 << 48) | (4 << 76)
_NOT_VERSION = ~((0xC000 << 48) | (0xF000 << 64))
"""The bits of a UUID that say its variant, of RFC 4122, and its version."""


def patch(patches: Patches) -> bool:
    """Put every shortcut in place that this Ray has the place for. There need not be any."""
    from ray.serve._private import utils  # noqa: PLC0415

    functions = [each for each in vars(utils).values() if isinstance(each, FunctionType)]
    making = [each.__code__ for each in functions if "UUID" in each.__code__.co_names]
    if [(code.co_name, code.co_names) for code in making] == [("generate_request_id", _NAMES)]:
        patches.wrap(utils, "uuid", Uuid)
    return True


class Uuid:
    """The module ``uuid`` to those that want no more of a UUID made of random bits than its text."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def UUID(self, *args: Any, int: Any = None, version: Any = None, **options: Any) -> Any:  # noqa: A002, N802  as there
        if version != 4 or int is None or int >> 128 or args or options:
            return self._module.UUID(*args, int=int, version=version, **options)
        text = f"{int & _NOT_VERSION | _VERSION_4:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
