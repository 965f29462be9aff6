"""Finds the head of a cluster, and asks it what it is, before anything connects to it.

A driver that connects to a head that does not answer waits for half a minute, and Ray's own code may end it; one with
another version of Ray is refused. Requests with a time limit tell that beforehand.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import Any, NamedTuple

from ray_tracing_hooks._ray.cluster import CONTROL, HOOK, NAMESPACE, SET_LATE
from ray_tracing_hooks._safety.errors import TracingError

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


TIMEOUT = 5.0
"""Seconds to wait for its answer."""

_UNAUTHENTICATED = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


class Head(NamedTuple):
    """What the head of a cluster says.

    Attributes:
        session: The name of its session.
        hook: The tracing hook of the cluster; None if it has none.
        is_hook_late: Whether the hook was set while the cluster was running.
        ray_version: The version of Ray that the cluster was started with; empty if it does not say.
        control: What has been set while it runs (:mod:`ray_tracing_hooks._control.control`); empty if nothing has.
    """

    session: str
    hook: str | None
    is_hook_late: bool
    ray_version: str
    control: str = ""


class NoAnswerError(TracingError):
    """The head does not answer. ``needs_token`` says that it asks for a token that this process does not have."""

    def __init__(self, message: str, *, needs_token: bool = False) -> None:
        super().__init__(message)
        self.needs_token = needs_token


def ask(address: str, timeout: float) -> Head:
    """What the head at ``host:port`` says within this many seconds. Raises NoAnswerError.

    If it requires a token, and there is one where Ray keeps it, this process uses it from then on.
    """
    import grpc  # noqa: PLC0415  as in _values

    try:
        return _head(_values(address, timeout))
    except grpc.RpcError as error:
        failure: Any = error
    if failure.code().name in _UNAUTHENTICATED and _use_token():
        try:
            return _head(_values(address, timeout))
        except grpc.RpcError as error:
            failure = error
    name = failure.code().name
    if name in _UNAUTHENTICATED:
        raise NoAnswerError(f"the cluster at {address} requires the token that it was started with", needs_token=True)
    raise NoAnswerError(f"no answer from a Ray cluster at {address} within {timeout:g} s ({name})")


def _values(address: str, timeout: float) -> dict[bytes, bytes]:
    """The values of the keys that are set. Raises ``grpc.RpcError``."""
    from ray._private import gcs_utils  # noqa: PLC0415  only where a cluster is asked
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc  # noqa: PLC0415

    channel = gcs_utils.create_gcs_channel(address)
    try:
        stub = gcs_service_pb2_grpc.InternalKVGcsServiceStub(channel)
        found = {}
        for namespace, key in (
            (b"session", b"session_name"),
            (b"cluster", b"CLUSTER_METADATA"),
            (NAMESPACE, HOOK),
            (NAMESPACE, SET_LATE),
            (NAMESPACE, CONTROL),
        ):
            request = gcs_service_pb2.InternalKVGetRequest(namespace=namespace, key=key)
            if value := stub.InternalKVGet(request, timeout=timeout).value:
                found[key] = value
        return found
    finally:
        channel.close()


def _head(found: dict[bytes, bytes]) -> Head:
    metadata: Any = {}
    with contextlib.suppress(ValueError):
        metadata = json.loads(found.get(b"CLUSTER_METADATA", b"{}"))
    hook = found.get(HOOK)
    return Head(
        found.get(b"session_name", b"").decode(errors="replace"),
        hook.decode(errors="replace") if hook is not None else None,
        SET_LATE in found,
        str(metadata.get("ray_version", "")),
        found.get(CONTROL, b"").decode(errors="replace"),
    )


def _use_token() -> bool:
    """Use the token that Ray has on this machine, unless the environment says something else; whether there is one."""
    if os.environ.get("RAY_AUTH_MODE"):
        return False
    try:
        from ray._private.authentication import authentication_token_setup  # noqa: PLC0415  not in older Rays

        setup: Any = authentication_token_setup
        if not setup.AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True):
            return False
        os.environ[setup.AUTH_MODE_ENV_VAR] = "token"
        setup.Config.initialize("")
    except (ImportError, AttributeError, TypeError):
        return False
    return True
