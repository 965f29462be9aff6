"""The Resource of a process: the attributes that its spans share."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import socket
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote

from opentelemetry.version import __version__ as opentelemetry_version

from ray_tracing_hooks import names
from ray_tracing_hooks._clock import now_ns
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._safety.processes import start_time
from ray_tracing_hooks._version import __version__

DEFAULT_SERVICE_NAME = "ray"

_ARGUMENTS = frozenset({"process.command_line", "process.command_args"})
"""Attributes that the process detector of some versions of OpenTelemetry adds. They are left out: arguments may contain
a password or a token, and those of a Ray worker contain some of Ray's."""

_OF_POD = {
    "K8S_POD_NAME": "k8s.pod.name",
    "K8S_POD_UID": "k8s.pod.uid",
    "K8S_NAMESPACE_NAME": "k8s.namespace.name",
    "K8S_NODE_NAME": "k8s.node.name",
    "K8S_RAY_CLUSTER": "ray.io/cluster",
    "K8S_RAY_NODE_TYPE": "ray.io/node-type",
    "K8S_RAY_GROUP": "ray.io/group",
}
"""The variables by which a pod passes its metadata, as in ``deploy/kubernetes``, and the attributes made of them. In
``OTEL_RESOURCE_ATTRIBUTES``, the metadata would replace attributes that the user has set there."""

_INSTANCES = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""The UUID namespace that the semantic conventions for ``service.instance.id`` define for stable ids."""


def attributes(of_ray: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of this process; ``of_ray`` are those from Ray.

    The user's own (``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_SERVICE_NAME``) take precedence over detected ones, as the
    specification asks. The SDK, which runs the detectors of ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS``, is imported only
    if any are named.
    """
    found = {
        # First, so that files of two processes differ early: a Collector identifies files by their first kilobyte.
        "service.instance.id": str(uuid.uuid5(_INSTANCES, of_ray[names.RESOURCE_WORKER_ID])),
        # KubeRay names the cluster in this variable.
        "service.name": environ.get("RAY_CLUSTER_NAME", "").strip() or DEFAULT_SERVICE_NAME,
        "telemetry.sdk.language": "python",
        "telemetry.sdk.name": "opentelemetry",
        "telemetry.sdk.version": opentelemetry_version,
        names.DISTRO_NAME: "ray_tracing_hooks",
        names.DISTRO_VERSION: __version__,
        "host.name": socket.gethostname(),
        **_host(),
        "process.pid": os.getpid(),
        **_created(),
        names.RESOURCE_PROCESSORS: len(os.sched_getaffinity(0)),
        "process.executable.path": sys.executable,
        "process.runtime.name": platform.python_implementation().lower(),
        "process.runtime.version": platform.python_version(),
        **{key: value for variable, key in _OF_POD.items() if (value := environ.get(variable, "").strip())},
        **of_ray,
    }
    if environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "").strip():
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  heavy, and rarely needed

        detected = dict(Resource.create({}).attributes)
        given = from_environment(environ)
        return {
            **found,
            **{
                key: value
                for key, value in detected.items()
                if key in given or not (key in _ARGUMENTS or _is_default(key, value))
            },
        }
    return {**found, **from_environment(environ)}


def of_child(parents: Mapping[str, Any]) -> Callable[[bytes], bytes]:
    """A function that turns the encoded Resource of a parent, with the attributes ``parents``, into that of its child.

    An instance id that the user has set is kept.
    """
    inherited = {key: parents[key] for key in ("process.pid", names.RESOURCE_CREATION_TIME) if key in parents}
    instance = str(parents.get("service.instance.id"))
    with contextlib.suppress(ValueError):
        if uuid.UUID(instance).version == 5:
            inherited["service.instance.id"] = instance

    @functools.lru_cache(maxsize=1)
    def replacements(pid: int) -> list[tuple[bytes, bytes]]:
        own = {"process.pid": pid, "service.instance.id": str(uuid.uuid4()), **_created()}
        return [(encode.resource({key: value}), encode.resource({key: own[key]})) for key, value in inherited.items()]

    def renewed(resource: bytes) -> bytes:
        for old, new in replacements(os.getpid()):
            resource = resource.replace(old, new)
        return resource

    return renewed


def of_caller(own: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a process of this cluster of which only a call is known, given those of this one."""
    return {key: value for key, value in own.items() if key in _OF_CLUSTER or key.startswith(_OF_SERVICE)}


_OF_SERVICE = ("service.name", "service.namespace", "deployment.", "telemetry.")
_OF_CLUSTER = {names.RESOURCE_RAY_VERSION, names.RESOURCE_SESSION_NAME, names.RESOURCE_GCS_ADDRESS}
"""What processes of a cluster have in common, as far as they have the same settings."""


def _created() -> dict[str, str]:
    """When this process was created, to a hundredth of a second; empty if the system does not provide it.

    Always the same for one process, although it is computed from two clocks.
    """
    return _created_of(os.getpid())


@functools.lru_cache(maxsize=1)
def _created_of(_pid: int) -> dict[str, str]:
    ticks = start_time("self")
    if ticks is None:
        return {}
    try:
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        created = datetime.fromtimestamp(now_ns() / 1e9 - age, timezone.utc)
    except (OSError, ValueError, AttributeError, OverflowError):
        return {}
    return {names.RESOURCE_CREATION_TIME: created.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


def _host() -> dict[str, str]:
    """The id and the architecture of the machine, by the semantic conventions for ``host``."""
    machine = os.uname().machine
    found = {"host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)}
    try:
        with open("/etc/machine-id", encoding="utf-8") as file:
            host_id = file.read().strip()
    except (OSError, ValueError):
        host_id = ""
    return {**found, "host.id": host_id} if host_id else found


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The attributes in ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME``; pairs without ``=`` are skipped, as in
    the SDK.
    """
    given: dict[str, str] = {}
    for pair in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, equals, value = pair.partition("=")
        if equals and key.strip():
            given[key.strip()] = unquote(value.strip())
    service = environ.get("OTEL_SERVICE_NAME", "").strip()
    if service:
        given["service.name"] = service
    return given


def _is_default(key: str, value: object) -> bool:
    """Whether this is a default of the SDK."""
    return key == "service.instance.id" or (key == "service.name" and str(value).startswith("unknown_service"))
