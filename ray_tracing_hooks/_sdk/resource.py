"""What the spans of a process say about the process (the Resource)."""

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
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._version import __version__

DEFAULT_SERVICE_NAME = "ray"

_ARGUMENTS = frozenset({"process.command_line", "process.command_args"})
"""What the detector of processes gives in some versions of OpenTelemetry, and is left out: there may be a password or a
token among them, and those of a Ray worker hold some of Ray's."""

_INSTANCES = uuid.UUID("4d63009a-8d0f-11ee-aad7-4c796ed8e320")
"""The namespace for ids made of something stable, by the semantic conventions for ``service.instance.id``."""


def attributes(of_ray: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The attributes of this process; ``of_ray`` is what Ray knows of it.

    The user's own (``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_SERVICE_NAME``) win over what is found out here, as the
    specification asks. Detectors of ``OTEL_EXPERIMENTAL_RESOURCE_DETECTORS`` are run by the SDK, which is imported only
    if there are any.
    """
    found = {
        # First, so that files of two processes differ early: a Collector tells files apart by their first kilobyte.
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
        **of_ray,
    }
    if environ.get("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", "").strip():
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  heavy, and seldom needed

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
    """For a forked child: makes of an encoded Resource of its parent's, whose attributes are ``parents``, its own.

    An instance id that the user has chosen stays.
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


def _created() -> dict[str, str]:
    """When this process was created, to a hundredth of a second; nothing where the system does not tell."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name of the program, in parentheses, may hold spaces and parentheses.
            ticks = int(file.read().rpartition(b")")[2].split()[_START_TIME])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        created = datetime.fromtimestamp(time.time() - age, timezone.utc)
    except (OSError, ValueError, IndexError, AttributeError, OverflowError):
        return {}
    return {names.RESOURCE_CREATION_TIME: created.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


_START_TIME = 22 - 3
"""Of the fields of ``/proc/self/stat`` that stand after the name: the time of the start, in ticks since the boot."""


def _host() -> dict[str, str]:
    """The id and the architecture of the machine, as the semantic conventions for ``host`` have them."""
    machine = os.uname().machine
    found = {"host.arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)}
    try:
        with open("/etc/machine-id", encoding="utf-8") as file:
            host_id = file.read().strip()
    except (OSError, ValueError):
        host_id = ""
    return {**found, "host.id": host_id} if host_id else found


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What ``OTEL_RESOURCE_ATTRIBUTES`` and ``OTEL_SERVICE_NAME`` say; pairs without ``=`` are skipped, as in the
    SDK.
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
    """What the SDK makes up where nobody has said anything."""
    return key == "service.instance.id" or (key == "service.name" and str(value).startswith("unknown_service"))
