"""Sending spans once more, from files or a spool that was left over: one folder to one exporter, and resumable.

How far it has come is stored after each portion in ``.replay-<exporter>.json`` in that folder, or, where that cannot be
written, in ``$XDG_STATE_HOME/ray-tracing-hooks``. So what a killed replay sends twice is at most one portion.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import random
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from ray_tracing_hooks._errors import SettingError, TracingError
from ray_tracing_hooks._guard import describe
from ray_tracing_hooks._ship.environment import digest
from ray_tracing_hooks._ship.files import LOCK, take_lock, write_atomically
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.problems import Problems, logger
from ray_tracing_hooks._ship.sinks import DeliveryError, Sink, Surroundings, make_sink, otlp_settings
from ray_tracing_hooks._ship.sources import JsonFiles, Source, Spool
from ray_tracing_hooks._spool.layout import SUFFIX

T = TypeVar("T")

# A problem is told by the command. Without a handler Python's own would print it too.
logger.addHandler(logging.NullHandler())

_FIRST_RETRY, _LAST_RETRY = 0.2, 10.0
"""Seconds to wait at most before the next attempt: twice as long after each failure, drawn from the upper half."""

_COUNTING = 2.0
"""Seconds that counting what is left may take."""

_SHOWN = 5
"""How many damaged lines are told one by one."""


class Losses(Problems):
    """Problems, and how much of what was to be sent is counted among them in ``lost``."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        super().__init__(mask)
        self.lost = 0

    def count(self, text: str, number: int) -> None:
        self.lost += number
        super().count(text, number)


class Replay:
    """The spans of one folder on their way to one exporter, which is that of the plan.

    ``paths`` are the files of the folder, and ``timeout`` is for how many seconds a failing delivery is repeated.
    ``tell`` is called with what the user should know at once: a failure that may pass. Everything else that is wrong is
    counted by ``problems``. With ``again`` it begins from the start.

    Attributes:
        before: How many spans were sent earlier.
        sent: How many were sent by this replay, with those that were refused.
    """

    def __init__(
        self,
        folder: str,
        paths: Sequence[str],
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        timeout: float = 60.0,
        tell: Callable[[str], None] = lambda _text: None,
        again: bool = False,
    ) -> None:
        (self._exporter,) = plan.exporters
        self._plan = plan
        self._environ = environ
        self._problems = problems
        self._timeout = timeout
        self._tell = tell
        self._store = _Store(folder, self._exporter, _destination(plan, environ))
        stored = {} if again else self._store.load()
        self._stored: Mapping[str, Any] = stored
        self._sink_state: Mapping[str, Any] = _mapping(stored.get("sink"))
        self._sources: dict[str, Source] = {}
        json_files = [path for path in paths if not path.endswith(SUFFIX)]
        if json_files:
            self._sources["files"] = JsonFiles(json_files, _mapping(stored.get("files")), self._damaged)
        if len(json_files) < len(paths):
            spool = _mapping(stored.get("spool")) or {"processes": _left_by_shipper(folder, plan, anew=again)}
            self._sources["spool"] = Spool(folder, spool, problems)
        self._positions = {name: source.position() for name, source in self._sources.items()}
        self.before = sum(source.before for source in self._sources.values())
        self.sent = 0
        self._damages = 0

    @property
    def files(self) -> int:
        """How many files spans have been taken from."""
        return sum(source.files for source in self._sources.values())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(source.size for source in self._sources.values())

    @property
    def done(self) -> int:
        """How many of these bytes have been read, now or earlier."""
        return sum(source.done for source in self._sources.values())

    def run(self, portion_sent: Callable[[], None] = lambda: None) -> None:
        """Send all that is there. Raises TracingError if that fails; another replay goes on where this one stopped."""
        sink: Sink | None = None
        try:
            for name, source in self._sources.items():
                for batches in source.portions():
                    if sink is None:
                        sink = self._persistently(self._make_sink)
                    self._persistently(partial(sink.deliver, batches))
                    self.sent += sum(len(batch.spans) for batch in batches)
                    self._reached(name, source.position(), sink.checkpoint())
                    portion_sent()
                # What is behind the last span: damage need not be told twice.
                if source.position() != self._positions[name]:
                    self._reached(name, source.position(), sink.checkpoint() if sink else self._sink_state)
        finally:
            if sink is not None:
                sink.close()

    def count(self, portion_read: Callable[[], None] = lambda: None) -> None:
        """Count as sent all that would be, and send nothing."""
        for source in self._sources.values():
            for batches in source.portions():
                self.sent += sum(len(batch.spans) for batch in batches)
                portion_read()

    def left(self) -> tuple[int, bool]:
        """How many spans there are still to be sent; False if there may be more, since counting took too long."""
        until = time.monotonic() + _COUNTING
        found = [source.left(self._positions[name], until) for name, source in self._sources.items()]
        return sum(spans for spans, _ in found), all(complete for _, complete in found)

    def _make_sink(self) -> Sink:
        return make_sink(
            self._exporter,
            Surroundings(
                self._plan, self._sink_state, self._remember, self._problems.count, self._environ, self._problems.say
            ),
        )

    def _persistently(self, action: Callable[[], T]) -> T:
        """What ``action`` gives, once it does not fail any more."""
        deadline = time.monotonic() + self._timeout
        pause = 0.0
        while True:
            try:
                return action()
            except SettingError:
                raise
            except Exception as error:  # noqa: BLE001  whatever it is, the next attempt may work
                failure = error
            message = str(failure) if isinstance(failure, TracingError) else describe(failure)
            asked = (failure.retry_after or 0.0) if isinstance(failure, DeliveryError) else 0.0
            left = deadline - time.monotonic()
            if asked:
                message += f" (it asks to be left alone for {asked:g} s)"
            if left <= asked:
                raise DeliveryError(message) from failure
            self._tell(message)
            pause = min(max(_FIRST_RETRY, 2 * pause), _LAST_RETRY)
            time.sleep(min(max(pause * random.uniform(0.5, 1.0), asked), left))  # noqa: S311  no secret

    def _reached(self, source: str, position: Mapping[str, Any], sink_state: Mapping[str, Any]) -> None:
        self._positions[source] = position
        self._sink_state = sink_state
        self._remember(sink_state)

    def _remember(self, sink_state: Mapping[str, Any]) -> None:
        try:
            self._store.save({**self._stored, **self._positions, "sink": sink_state})
        except OSError as error:
            self._problems.say(
                f"{self._store}: {error.strerror}; if this is interrupted, it begins from the start again"
            )

    def _damaged(self, text: str) -> None:
        self._problems.count("{count} lines or spans could not be read and were skipped", 1)
        if self._damages < _SHOWN:
            self._problems.say(text)
        self._damages += 1


@contextlib.contextmanager
def held(folder: str, *, is_spool: bool) -> Iterator[None]:
    """Keeps other replays, and a shipper, away from this folder. Raises TracingError if one is at work there."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):  # only files in it can be read, and only one by one
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TracingError(f"another replay is at work in {folder!r}") from None
        if is_spool:
            stack.enter_context(_without_shipper(folder))
        yield


@contextlib.contextmanager
def _without_shipper(folder: str) -> Iterator[None]:
    try:
        lock = take_lock(folder)
    except OSError:  # it cannot be written to, not by a shipper either
        yield
        return
    if lock is None:
        raise TracingError(f"a shipper is at work on the spool {folder!r}: it delivers by itself")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, LOCK))
        os.close(lock)


class _Store:
    """Where the progress of one folder and exporter is stored, for each destination."""

    def __init__(self, folder: str, exporter: str, destination: str) -> None:
        self._destination = destination
        label = re.sub(r"[^\w.-]", "_", exporter)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        path = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        self._beside = os.path.join(folder, f".replay-{label}.json")
        self._at_home = os.path.join(home, "ray-tracing-hooks", f"replay-{label}-{path}.json")

    def __str__(self) -> str:
        return f"cannot store in {self._beside!r} or {self._at_home!r} how far the replay has come"

    def load(self) -> dict[str, Any]:
        return _mapping(self._all().get(self._destination))

    def save(self, progress: Mapping[str, Any]) -> None:
        """Raises OSError."""
        text = json.dumps({**self._all(), self._destination: progress})
        try:
            write_atomically(self._beside, text)
        except OSError:
            os.makedirs(os.path.dirname(self._at_home), mode=0o700, exist_ok=True)
            write_atomically(self._at_home, text)

    def _all(self) -> dict[str, Any]:
        found = [each for path in (self._beside, self._at_home) if (each := _own_json(path)) is not None]
        return max(found, key=lambda each: each[0])[1] if found else {}


def _own_json(path: str) -> tuple[int, dict[str, Any]] | None:
    """When a file was written, and the JSON object in it. Only of this user's files: others could have ours removed."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8") as file:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
                return found.st_mtime_ns, _mapping(json.load(file))
    return None


def _mapping(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _destination(plan: ShipPlan, environ: Mapping[str, str]) -> str:
    """Whatever tells two places apart that spans can be sent to; not how patiently, nor with which token."""
    (exporter,) = plan.exporters
    if exporter == "local":
        parts: list[Any] = [plan.local_dir]
    elif exporter == "otlp":
        otlp = otlp_settings.read(environ, lambda _problem: None)
        # Other headers name an account or a tenant.
        parts = [otlp.address, sorted(item for item in otlp.headers.items() if item[0] != "authorization")]
    elif exporter == "jaeger":
        from ray_tracing_hooks._ship.sinks import jaeger_settings  # noqa: PLC0415  each only where it is used

        parts = [jaeger_settings.read(plan, environ, lambda _problem: None).address]
    else:
        parts = sorted(item for item in environ.items() if re.search("ENDPOINT|HOST|PORT$|URL", item[0]))
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "replace")).hexdigest()[:16]


def _left_by_shipper(folder: str, plan: ShipPlan, *, anew: bool) -> dict[str, Any]:
    """Where in the spool a replay begins that was never there.

    If the shipper that left the spool was to deliver to the very same place, that is where it stopped. Otherwise at the
    beginning, but with the spans that had begun in segments which are gone.
    """
    (exporter,) = plan.exporters
    with contextlib.suppress(OSError, ValueError):
        theirs = ShipPlan.load(folder)
        same = exporter in theirs.exporters and _same_place(exporter, plan, theirs)
        if same and not anew:
            return _shipped(folder, f"progress-{exporter.replace(os.sep, '_')}.json")
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith("progress-") and name.endswith(".json"):
                for process, entry in _shipped(folder, name).items():
                    begun.setdefault(process, {"sequence": 0, "offset": 0, "openings": []})
                    begun[process]["openings"] += _mapping(entry).get("openings", [])
    return begun


def _shipped(folder: str, name: str) -> dict[str, Any]:
    found = _own_json(os.path.join(folder, name))
    return _mapping(found[1].get("processes")) if found else {}


def _same_place(exporter: str, ours: ShipPlan, theirs: ShipPlan) -> bool:
    if exporter == "local":
        return ours.local_dir == theirs.local_dir
    jaeger = (ours.jaeger_protocol, ours.jaeger_endpoint) == (theirs.jaeger_protocol, theirs.jaeger_endpoint)
    return ours.environment == theirs.environment and (jaeger or exporter != "jaeger")


def make_plan(exporter: str, environ: Mapping[str, str], **settings: Any) -> ShipPlan:
    """The plan of a replay to this exporter."""
    return ShipPlan(
        exporters=(exporter,), label="replay", environment=digest(environ, (exporter,)), spool_max_bytes=0, **settings
    )
