"""Finds the head of a cluster, and asks it what it is, before anything connects to it.

A driver that connects to a head that does not answer waits for half a minute, and Ray's own code may end it; one with
another version of Ray is refused. Requests with a time limit tell that beforehand.

A command connects to a cluster without spans, shows no values, and reports a raylet that does not answer. This wraps
functions of Ray in this process only, while it connects:

* ``tracing_helper._enable_tracing``, which switches on Ray's own tracing, and the hook, which is not called while
  ``ray.__traced__`` is set (Ray 2.60, the end of ``connect()`` in ``_private/worker.py``). The hook may not even be
  importable here. Also ``listen_error_messages`` of the same file, which would print what is reported as a finding.
* ``get_entrypoint_name`` (Ray 2.40 to 2.60, ``_private/utils.py``): Ray stores the command line of each driver in its
  table of jobs, where whoever may use the cluster sees it, and values of settings may be secrets.
* ``get_node_to_connect_for_driver`` (Ray 2.60, ``_private/services.py``), which chooses the raylet; older versions do
  not say its address. A driver asks the raylet of its node for the settings of the cluster. Where that does not answer,
  since it is suspended or overloaded, Ray's compiled code ends the process: neither Python nor the user learns why.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ray_tracing_hooks._ray.cluster import CONTROL, HOOK, NAMESPACE, SET_LATE
from ray_tracing_hooks._safety.guard import TracingError
from ray_tracing_hooks._safety.patching import ABSENT, Patches

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
        raise NoClusterError("no Ray cluster started by `ray start` runs on this machine")
    if not re.fullmatch(rf"{_HOST}:\d+", str(found)):
        raise AddressError(f"{wanted!r} is not the address of a cluster's head: {expected}")
    return str(found)


TIMEOUT = 5.0
"""Seconds to wait for its answer."""

_UNAUTHENTICATED = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


class Head(NamedTuple):
    """What the head of a cluster says; texts are empty where it does not.

    Attributes:
        hook: The tracing hook of the cluster; None if it has none.
        is_hook_late: Whether the hook was set while the cluster was running.
        ray_version: The version of Ray that the cluster was started with.
        control: What has been set while it runs (:mod:`ray_tracing_hooks._control.control`).
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
    """What the head at ``host:port`` says within this many seconds. Raises NoAnswerError."""
    import grpc  # noqa: PLC0415  as in _values

    try:
        return _head(_values(address, timeout))
    except grpc.RpcError as error:
        name = error.code().name
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


COMMAND_NAMESPACE = "_ray_internal_ray_tracing_hooks"
"""That of such drivers. The beginning marks drivers of Ray's own: one that serves a Ray Client makes no root span for
it.
"""


@contextmanager
def as_command() -> Iterator[None]:
    """Connections of this process within this block make no spans and print nothing, and the table of jobs has their
    command line without values. They raise SilentRayletError where Ray would end the process.
    """
    import ray  # noqa: PLC0415  only where a cluster is asked
    from ray._private import services, utils, worker  # noqa: PLC0415
    from ray.util.tracing import tracing_helper  # noqa: PLC0415

    patches = Patches()
    patches.set(ray, "__traced__", True, back=getattr(ray, "__traced__", ABSENT))
    patches.wrap(tracing_helper, "_enable_tracing", _returning(lambda: None))
    patches.wrap(worker, "listen_error_messages", _returning(lambda: None))
    patches.wrap(utils, "get_entrypoint_name", _returning(lambda: without_values(sys.argv[1:])))
    patches.wrap(services, "get_node_to_connect_for_driver", _asked_first)
    try:
        yield
    finally:
        patches.undo()


def _returning(result: Callable[[], Any]) -> Callable[[Any], Callable[..., Any]]:
    return lambda _original: lambda *_arguments, **_options: result()


_NAME = re.compile(r"(-{0,2}[A-Za-z][\w-]*)(=.*)?", re.ASCII | re.DOTALL)
"""An option, or the name of a setting, perhaps with its value."""

_LEFT_OUT = "..."


def without_values(words: Sequence[str]) -> str:
    """The command line of these words; of all but the first, the command, names are left."""
    return " ".join(("ray-tracing-hooks", *words[:1], *map(_name, words[1:])))


def _name(word: str) -> str:
    found = _NAME.fullmatch(word)
    if found is not None and found[2]:
        return f"{found[1]}={_LEFT_OUT}"
    return word if found is not None and word.startswith("-") else _LEFT_OUT


_RAYLET_TIMEOUT = 25.0
"""Seconds that a raylet may take to answer. Ray (2.52 and 2.60) ends the process after 28: a raylet that is only slow
must not be refused before."""


class SilentRayletError(TracingError):
    """The raylet that a driver would connect to does not answer."""


def _asked_first(choose: Callable[..., Any]) -> Callable[..., Any]:
    def choose_one_that_answers(*arguments: Any, **options: Any) -> Any:
        chosen = choose(*arguments, **options)
        address = _address(chosen)
        if address and not _answers(address):
            raise SilentRayletError(
                f"the raylet of this node, at {address}, did not answer within {_RAYLET_TIMEOUT:g} s: it may be "
                "suspended, overloaded or gone"
            )
        return chosen

    return choose_one_that_answers


def _address(node: Any) -> str:
    """Where a raylet listens; empty if this Ray describes nodes in another way."""
    try:
        host, port = node.node_manager_address, node.node_manager_port
    except AttributeError:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _answers(address: str) -> bool:
    """Whether a server speaks HTTP/2 there; of a process that is suspended, the kernel still accepts connections."""
    import grpc  # noqa: PLC0415  only where a cluster is asked
    from ray._private import gcs_utils  # noqa: PLC0415  as above

    channel = gcs_utils.create_gcs_channel(address)
    try:
        grpc.channel_ready_future(channel).result(_RAYLET_TIMEOUT)
    except grpc.FutureTimeoutError:
        return False
    finally:
        channel.close()
    return True
