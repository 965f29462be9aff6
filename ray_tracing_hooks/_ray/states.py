"""Fetches task states, which spans do not contain, from the head of a cluster, and stores them in a file.

The file is in the folder of the span files. Ray's processes report states to the GCS, or to the dashboard alone if
``RAY_enable_task_events_to_dashboard_head`` is on and ``RAY_enable_core_worker_task_event_to_gcs`` is off. The
dashboard answers the same request (Ray 2.60 ``dashboard/modules/task_events/task_events_head.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from http.client import OK, HTTPConnection
from typing import Any, NamedTuple

from ray_tracing_hooks._clock import monotonic, now_ns
from ray_tracing_hooks._formats import task_states
from ray_tracing_hooks._formats.task_states import About, Attempt
from ray_tracing_hooks._safety.exceptions import is_interruption
from ray_tracing_hooks._safety.private import inside, open_file, open_folder, write_atomically

MOST_AT_THE_END = 20_000
"""Most attempts to fetch at the end of a driver: these are read and written within a second."""


class StatesAnswer(NamedTuple):
    session: str
    dropped: int
    """How many events or attempts are missing from the answer."""
    attempts: Iterator[Attempt]
    is_of_dashboard: bool = False
    """Whether the GCS has none, and the dashboard keeps them."""


def ask(address: str, timeout: float, most: int | None = None) -> StatesAnswer:
    """Fetch the task states of the cluster at this address, of at most ``most`` attempts.

    Each of the two requests, and of two more if the GCS has none, may take ``timeout`` seconds. Raises
    ``grpc.RpcError`` if the cluster does not answer.
    """
    from ray._private import gcs_utils  # noqa: PLC0415  the hook's module must be importable without Ray
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc  # noqa: PLC0415

    channel = gcs_utils.create_gcs_channel(address)
    try:
        store = gcs_service_pb2_grpc.InternalKVGcsServiceStub(channel)
        kept = store.InternalKVGet(
            gcs_service_pb2.InternalKVGetRequest(namespace=b"session", key=b"session_name"), timeout=timeout
        )
        request = gcs_service_pb2.GetTaskEventsRequest()
        request.filters.exclude_driver = True
        if most is not None:
            request.limit = most
        reply = gcs_service_pb2_grpc.TaskInfoGcsServiceStub(channel).GetTaskEvents(request, timeout=timeout)
        by_dashboard = None
        if not reply.events_by_task:
            at = store.InternalKVGet(
                gcs_service_pb2.InternalKVGetRequest(namespace=b"dashboard", key=b"dashboard"), timeout=timeout
            )
            by_dashboard = _reply_of_dashboard(at.value.decode(errors="replace"), request, timeout)
    finally:
        channel.close()
    session = kept.value.decode(errors="replace") or "unknown"
    reply = reply if by_dashboard is None else by_dashboard
    dropped = reply.num_status_task_events_dropped + reply.num_truncated
    return StatesAnswer(session, dropped, _attempts(reply), by_dashboard is not None)


def _reply_of_dashboard(address: str, request: Any, timeout: float) -> Any:
    """Its reply to the same request; None if it does not run, or keeps no task states."""
    try:
        from ray._private.authentication.http_token_authentication import (  # noqa: PLC0415  as above
            get_auth_headers_if_auth_enabled,
        )
        from ray.core.generated import gcs_service_pb2  # noqa: PLC0415

        connection = HTTPConnection(address.removeprefix("http://"), timeout=timeout)
        try:
            body, headers = request.SerializeToString(), get_auth_headers_if_auth_enabled({})
            connection.request("POST", "/api/task_events/query", body, headers)
            response = connection.getresponse()
            return gcs_service_pb2.GetTaskEventsReply.FromString(response.read()) if response.status == OK else None
        finally:
            connection.close()
    except Exception as error:  # an older Ray, or whatever else is at that address
        if is_interruption(error):
            raise
        return None


def keep(folder: str, answer: StatesAnswer) -> tuple[str, int, int]:
    """Add the answer to the file of its session.

    Returns the path of the file, how many attempts it contains, and how many of them are in this answer. An empty
    answer creates no file. Raises OSError, and ValueError if there is a file that is not of this version.
    """
    name = task_states.file_name(answer.session)
    path = os.path.join(folder, name)
    fetched = {(each.task_id, each.attempt): each for each in answer.attempts}
    if not fetched:
        return path, 0, 0
    known = dict(_known(path))
    for key, attempt in fetched.items():
        known[key] = _merged(known[key], attempt) if key in known else attempt
    place = open_folder(folder, given=True)
    try:
        about = About(answer.session, now_ns(), answer.dropped)
        write_atomically(os.path.join(inside(place), name), *task_states.lines(about, known.values()))
    finally:
        os.close(place)
    return path, len(known), len(fetched)


def _merged(known: Attempt, fetched: Attempt) -> Attempt:
    """All that is known of an attempt: events lack states that the GCS adds itself, and either may lack the definition.
    As in the GCS, the last time of a state counts.
    """
    states = dict(known.states)
    for state, began in fetched.states.items():
        states[state] = max(began, states.get(state, 0))
    return (fetched if fetched.name else known)._replace(states=states)


def keep_at_the_end(address: str, folder: str, seconds: float) -> None:
    """Fetch and store the task states of a cluster that is about to end, within about this many seconds."""
    deadline = monotonic() + seconds

    import grpc  # noqa: PLC0415  as above

    # A fourth for each of the usual requests, and the rest for reading and writing.
    left = (deadline - monotonic()) / 4
    if left <= 0:
        return
    # A failed head has no answer, and problems with the folder are reported by the local exporter.
    with suppress(grpc.RpcError, OSError, ValueError):
        answer = ask(address, left, MOST_AT_THE_END)
        keep(folder, answer._replace(attempts=_until(deadline, answer.attempts)))


def _until(deadline: float, attempts: Iterable[Attempt]) -> Iterator[Attempt]:
    for attempt in attempts:
        if monotonic() > deadline:
            return
        yield attempt


def _attempts(reply: Any) -> Iterator[Attempt]:
    from ray.core.generated import common_pb2  # noqa: PLC0415

    names, kinds = common_pb2.TaskStatus, common_pb2.TaskType
    known = set(names.values())
    for event in reply.events_by_task:
        times = event.state_updates.state_ts_ns
        if times:
            yield Attempt(
                event.task_id.hex(),
                event.attempt_number,
                event.task_info.name,
                kinds.Name(event.task_info.type),
                event.job_id.hex(),
                {names.Name(state): times[state] for state in sorted(times) if state in known},
            )


def _known(path: str) -> Iterator[tuple[tuple[str, int], Attempt]]:
    """The attempts that the file contains already, some of which Ray may have dropped meanwhile."""
    try:
        file = open_file(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        for attempt in task_states.read(inside(file))[1]:
            yield (attempt.task_id, attempt.attempt), attempt
    finally:
        os.close(file)
