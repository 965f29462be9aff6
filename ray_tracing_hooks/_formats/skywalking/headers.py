"""SkyWalking's headers: ``sw8`` of 8.0 and newer, ``sw6`` of 6.x and 7.x, and what travels beside them.

The names by which SkyWalking knows a service and what it calls are here too: they are the same in headers and segments.

A reader gets None for anything that is not exactly right, and a writer never makes a header with an empty part: such a
header silences the trace of its receiver, and may break its request.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.skywalking.ids import is_id, three_numbers

SW8, SW8_CORRELATION, SW8_EXTENSION, SW6 = "sw8", "sw8-correlation", "sw8-x", "sw6"
"""The names of the headers, in lower case as SkyWalking writes them."""

UNSAMPLED = "1-------"
"""What SkyWalking's Python agent sends in a trace that is not sampled. Its receivers then record nothing."""

LONGEST_NAME = 50
"""Most characters of a service or an instance."""
LONGEST_ENDPOINT = 149
LONGEST_ADDRESS = 70
"""SkyWalking cuts the address that it stores at this length, but not the one that it compares it with."""

MOST_CORRELATIONS, LONGEST_CORRELATION = 3, 128
"""SkyWalking's own limits on the pairs of a correlation context, and on the length of a value."""

NO_ENDPOINT = "-1"
USER = 1
"""The id of the service ``User`` and of its only instance, which each back end of 6.x and 7.x has."""

_MOST_HEADER = 4096
_INT32 = (1 << 31) - 1
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_SIGNED = re.compile(r"-?\d{1,10}", re.ASCII)


class Reference(NamedTuple):
    """A span of another segment, as a header refers to it.

    ``service``, ``instance`` and ``endpoint`` are empty in a header of 6.x, which has ids instead: 0 where there are
    none. The endpoints of 6.x are literals with ``#`` before them, ids, or :data:`NO_ENDPOINT`.
    """

    trace_id: str
    segment_id: str
    span: int
    sampled: bool
    service: str
    instance: str
    endpoint: str
    address: str
    instance_id: int = 0
    entry_instance_id: int = 0
    entry_endpoint: str = ""
    parent_endpoint: str = ""

    @property
    def is_of_6(self) -> bool:
        return self.instance_id != 0


def read_sw8(header: str) -> Reference | None:
    """The reference in an ``sw8`` header; None if it is not one."""
    if len(header) > _MOST_HEADER:
        return None
    parts = header.strip().split("-")
    if len(parts) != 8 or parts[0] not in ("0", "1"):
        return None
    span = _number(parts[3])
    texts = [_read(part) for part in (parts[1], parts[2], *parts[4:])]
    if span is None or not all(texts):
        return None
    trace_id, segment_id, service, instance, endpoint, address = (text or "" for text in texts)
    if not (is_id(trace_id) and is_id(segment_id)):
        return None
    return Reference(trace_id, segment_id, span, parts[0] == "1", service, instance, endpoint, address)


def write_sw8(reference: Reference) -> str:
    """The header for a reference, none of whose texts may be empty."""
    return "-".join(
        (
            "1" if reference.sampled else "0",
            _write(reference.trace_id),
            _write(reference.segment_id),
            str(reference.span),
            _write(reference.service),
            _write(reference.instance),
            _write(reference.endpoint),
            _write(reference.address),
        )
    )


def read_sw6(header: str) -> Reference | None:
    """The reference in an ``sw6`` header; None if it is not one."""
    if len(header) > _MOST_HEADER:
        return None
    parts = header.strip().split("-")  # none has a dash: base64 has none, and the numbers are not negative
    if len(parts) != 9 or parts[0] not in ("0", "1"):
        return None
    trace_id, segment_id, address, entry, parent = (_read(parts[index]) for index in (1, 2, 6, 7, 8))
    span, instance, first = _number(parts[3]), _number(parts[4]), _number(parts[5])
    if span is None or not instance or not first or not address:
        return None
    if trace_id is None or three_numbers(trace_id) is None or segment_id is None or three_numbers(segment_id) is None:
        return None
    if not (_is_named(address) and _is_named(entry) and _is_named(parent)):
        return None
    return Reference(
        trace_id,
        segment_id,
        span,
        parts[0] == "1",
        "",
        "",
        "",
        address,
        instance,
        first,
        entry or NO_ENDPOINT,
        parent or NO_ENDPOINT,
    )


def write_sw6(reference: Reference) -> str:
    """The header for a reference with the ids of 6.x."""
    return "-".join(
        (
            "1" if reference.sampled else "0",
            _write(reference.trace_id),
            _write(reference.segment_id),
            str(reference.span),
            str(reference.instance_id),
            str(reference.entry_instance_id),
            _write(reference.address),
            _write(reference.entry_endpoint or NO_ENDPOINT),
            _write(reference.parent_endpoint or NO_ENDPOINT),
        )
    )


def read_correlation(header: str) -> dict[str, str]:
    """The pairs of a correlation context. What is malformed, and what is beyond SkyWalking's limits, is left out."""
    found: dict[str, str] = {}
    for pair in header.split(",") if len(header) <= _MOST_HEADER else ():
        key, colon, value = pair.strip().partition(":")
        name, text = _read(key), _read(value) if value else ""
        if colon and name and text is not None and len(text) <= LONGEST_CORRELATION and len(found) < MOST_CORRELATIONS:
            found[name] = text
    return found


def write_correlation(pairs: Mapping[str, str]) -> str:
    """The header for these pairs, without those beyond SkyWalking's limits."""
    fitting = [(key, value) for key, value in pairs.items() if key and value and len(value) <= LONGEST_CORRELATION]
    return ",".join(f"{_write(key)}:{_write(value)}" for key, value in fitting[:MOST_CORRELATIONS])


def skips_analysis(extension: str) -> bool | None:
    """The first part of an ``sw8-x`` header: whether the spans of the trace are left out of the metrics; None without
    one.
    """
    first = extension.strip().partition("-")[0]
    return {"0": False, "1": True}.get(first)


def write_extension(*, skip: bool) -> str:
    """An ``sw8-x`` header without a time, which only the process that sends the request knows.

    Agents put a space where the time is missing. A value may not end with one: ``h11``, for one, refuses the request.
    """
    return f"{int(skip)}-"


def cut(text: str, most: int) -> str:
    """The text within its limit, as the header and the segment both have it, or a dash for an empty one."""
    return text.strip()[:most] or "-"


def _is_named(text: str | None) -> bool:
    """Whether 6.x can read it: a literal with ``#`` before it, an id, or ``-1``."""
    return bool(text) and (text[0] == "#" or _SIGNED.fullmatch(text) is not None) if text else False


def _number(text: str) -> int | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if number <= _INT32 else None


def _read(encoded: str) -> str | None:
    """A text in base64, with or without its padding; None if it is not one."""
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True).decode()
    except (binascii.Error, ValueError):  # UnicodeDecodeError is one
        return None


def _write(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


_SESSION = "session_"
"""How the names of Ray's sessions begin."""

_HOSTS = (("server.address", "server.port"), ("net.peer.name", "net.peer.port"), ("peer.service", ""))
_URLS = ("url.full", "http.url")


REGISTERED = "registered"
"""The key of the ids that a back end of 6.x has given out, in the state that the exporter stores in the spool."""


class Identity(NamedTuple):
    """What SkyWalking calls a process: many processes of one cluster are one instance of one service."""

    service: str
    instance: str


def identity(
    resource: Mapping[str, Any],
    service: str | None = None,
    instance: str | None = None,
    namespace: str | None = None,
    of_deployment: str | None = None,
) -> Identity:
    """The identity of a process with this resource, where the settings do not say otherwise.

    ``of_deployment`` is the name of the service for replicas of a deployment of Ray Serve, with placeholders.

    The instance is the session of the Ray cluster: then the parent of a span in another process is of the same
    instance, and a reference to it is right. The workers of a cluster come and go; SkyWalking would keep each.
    """
    name = service or str(resource.get("service.name") or "ray")
    deployment = resource.get(names.RAY_SERVE_DEPLOYMENT)
    if of_deployment and deployment:
        values = {
            "service": name,
            "application": str(resource.get(names.RAY_SERVE_APPLICATION) or ""),
            "deployment": str(deployment),
        }
        name = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], ""), of_deployment)
    if namespace:
        name = f"{name}|{namespace}"
    if not instance:
        session = str(resource.get(names.RESOURCE_SESSION_NAME) or resource.get("host.name") or "ray")
        instance = session.removeprefix(_SESSION)
    return Identity(cut(name, LONGEST_NAME), cut(instance, LONGEST_NAME))


def address(attributes: Mapping[str, Any], called: str, service: str) -> str:
    """The address that a call goes to: ``host:port`` if its attributes tell it, else a name for what is called.

    SkyWalking draws an arrow if this is the same text in the span of the call and in the header that it sends.
    """
    peer = attributes.get(names.SKYWALKING_PEER)
    if peer:
        return cut(str(peer), LONGEST_ADDRESS)
    for host, port in _HOSTS:
        if name := attributes.get(host):
            number = attributes.get(port) if port else None
            return cut(f"{name}:{number}" if number else str(name), LONGEST_ADDRESS)
    for key in _URLS:
        if found := _host_of(str(attributes.get(key) or "")):
            return cut(found, LONGEST_ADDRESS)
    return cut(f"ray:{service}/{called}", LONGEST_ADDRESS)


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def registered_in(state: Mapping[str, Any]) -> dict[Identity, tuple[int, int]]:
    """The ids of services and instances in that state; nothing of a malformed one."""
    try:
        return {
            Identity(str(service), str(instance)): (int(service_id), int(instance_id))
            for service, instance, service_id, instance_id in state.get(REGISTERED, ())
        }
    except (TypeError, ValueError):
        return {}
