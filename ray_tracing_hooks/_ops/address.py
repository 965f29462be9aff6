"""Finds the address of a cluster: as given, in ``RAY_ADDRESS``, or of the one that ``ray start`` started here."""

from __future__ import annotations

import os
import re

from ray_tracing_hooks._errors import TracingError

CLIENT = "ray://"

_HOST = r"[^/\s\ud800-\udfff]+"
"""No name of a host has what is no Unicode, such as bytes of an argument that are not UTF-8."""


class NoRayError(TracingError):
    """Ray cannot be imported here."""


class NoClusterError(TracingError):
    """No address is given, and no cluster runs here."""


class AddressError(TracingError):
    """What is given is no address of a cluster."""


def find(given: str | None, *, clients: bool = True) -> str:
    """The address ``host:port`` of a cluster's head; with ``clients``, ``ray://host:port`` is accepted too.

    Raises the errors above.
    """
    try:
        from ray._private import services  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    except ImportError as error:
        raise NoRayError(str(error)) from None
    wanted = given or os.environ.get("RAY_ADDRESS") or ""
    if clients and re.fullmatch(rf"{CLIENT}{_HOST}:\d+", wanted):
        return wanted
    expected = f"expected HOST:PORT{f', or {CLIENT}HOST:PORT' if clients else ''}"
    try:
        found = services.canonicalize_bootstrap_address(given)
    except Exception as error:  # noqa: BLE001  Ray raises different errors for invalid addresses
        raise AddressError(f"{wanted!r} is not the address of a cluster's head: {expected} ({error})") from None
    if found is None:
        raise NoClusterError("no cluster that `ray start` has started runs here")
    if not re.fullmatch(rf"{_HOST}:\d+", str(found)):
        raise AddressError(f"{wanted!r} is not the address of a cluster's head: {expected}")
    return str(found)
