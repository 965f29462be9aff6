"""Replays spans from files or a leftover spool: one folder to one exporter, resumable.

Progress is stored after each portion, so a killed replay sends at most one portion twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ray_tracing_hooks._formats.encoded_span.read import own_ids
from ray_tracing_hooks._safety.guard import SettingError, TracingError
from ray_tracing_hooks._safety.private import read_file, write_atomically
from ray_tracing_hooks._ship.figures import is_reached, read
from ray_tracing_hooks._ship.files import LOCK, REPLAY_PREFIX, take_lock
from ray_tracing_hooks._ship.folder import is_deserted
from ray_tracing_hooks._ship.log import Problems, logger
from ray_tracing_hooks._ship.plan import ShipPlan
from ray_tracing_hooks._ship.registry import destination_of, make_sink
from ray_tracing_hooks._ship.replay_inputs import Input, JsonFiles, Spool
from ray_tracing_hooks._ship.sink import (
    Backoff,
    Batch,
    DeliveryError,
    RefusesAllError,
    Sink,
    SinkContext,
    reason,
    retry_after,
)
from ray_tracing_hooks._spool.layout import SUFFIX
from ray_tracing_hooks._spool.progress import file_name, is_progress_file

T = TypeVar("T")

# The command prints problems. Without a handler, Python's default one would print them too.
logger.addHandler(logging.NullHandler())

_COUNTING = 2.0
"""Seconds that counting the remaining spans may take."""

_SHOWN = 5
"""How many damaged lines are reported individually."""


class Selection(NamedTuple):
    """The spans that a replay sends.

    Attributes:
        text: What selects them: the progress of replays of another selection is another one.
        ids: The trace id and the id of each, together.
    """

    text: str
    ids: Collection[bytes]

    def of(self, batches: Sequence[Batch]) -> list[Batch]:
        """The batches with these spans alone."""
        kept = (batch._replace(spans=[each for each in batch.spans if own_ids(each) in self.ids]) for batch in batches)
        return [batch for batch in kept if batch.spans]


class Losses(Problems):
    """Problems, with the total of the counted losses in ``lost``."""

    def __init__(self, mask: Callable[[str], str] = str) -> None:
        super().__init__(mask)
        self.lost = 0

    def count(self, text: str, number: int) -> None:
        self.lost += number
        super().count(text, number)


class Replay:
    """Sends the spans of one folder to the exporter of the plan.

    ``paths`` are the files of the folder. All problems but those of :meth:`run` are counted by ``problems``. With
    ``again``, it starts from the beginning. ``only`` is what to send, if not all.

    Attributes:
        before: How many spans were sent earlier; 0 with ``only``, where that is not counted.
        sent: How many were sent by this replay, including lost ones.
        lost: How many of them were refused, or could not be decoded.
    """

    def __init__(
        self,
        folder: str,
        paths: Sequence[str],
        plan: ShipPlan,
        environ: Mapping[str, str],
        problems: Problems,
        *,
        again: bool = False,
        only: Selection | None = None,
    ) -> None:
        (self._exporter,) = plan.exporters
        self._plan = plan
        self._only = only
        self._environ = environ
        self._problems = problems
        self._progress = ReplayProgress(folder, plan, environ, only.text if only else "")
        stored = {} if again else self._progress.load()
        self._stored: Mapping[str, Any] = stored
        self._sink_state: Mapping[str, Any] = mapping(stored.get("sink"))
        self._inputs: dict[str, Input] = {}
        json_files = [path for path in paths if not path.endswith(SUFFIX)]
        if json_files:
            self._inputs["files"] = JsonFiles(json_files, mapping(stored.get("files")), self._damaged)
        if len(json_files) < len(paths):
            spool = mapping(stored.get("spool"))
            if not spool:
                spool["processes"], self._sink_state = left_by_shipper(folder, plan, anew=again)
            self._inputs["spool"] = Spool(folder, spool, problems)
        self._positions = {name: input_.position() for name, input_ in self._inputs.items()}
        self.before = 0 if only else sum(input_.before for input_ in self._inputs.values())
        self.sent = self.lost = 0
        self._damages = 0

    @property
    def files(self) -> int:
        return sum(input_.files for input_ in self._inputs.values())

    @property
    def size(self) -> int:
        return sum(input_.size for input_ in self._inputs.values())

    @property
    def done(self) -> int:
        """How many of these bytes have been read, now or earlier."""
        return sum(input_.done for input_ in self._inputs.values())

    def run(
        self,
        timeout: float,
        portion_sent: Callable[[], None] = lambda: None,
        on_failure: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Send all spans. Raises TracingError if that fails; the next replay continues where this one stopped.

        A failing delivery is retried for ``timeout`` seconds, and ``on_failure`` is called with each failure that may
        pass.
        """
        retried = partial(_retried, timeout, on_failure)
        sink: Sink | None = None
        try:
            for name, input_ in self._inputs.items():
                for batches in self._portions(input_):
                    if sink is None:
                        sink = retried(self._make_sink)
                    if batches:
                        retried(partial(sink.deliver, batches))
                    self.sent += sum(len(batch.spans) for batch in batches)
                    self._reached(name, input_.position(), sink.checkpoint())
                    portion_sent()
                # Also advance past the last span, so that damage after it is not reported twice.
                if input_.position() != self._positions[name]:
                    self._reached(name, input_.position(), sink.checkpoint() if sink else self._sink_state)
        finally:
            if sink is not None:
                sink.close()

    def count(self, portion_read: Callable[[], None] = lambda: None) -> None:
        """Count all spans as sent without sending them."""
        for input_ in self._inputs.values():
            for batches in self._portions(input_):
                self.sent += sum(len(batch.spans) for batch in batches)
                portion_read()

    def _portions(self, input_: Input) -> Iterator[list[Batch]]:
        for batches in input_.portions():
            yield batches if self._only is None else self._only.of(batches)

    def left(self) -> tuple[int, bool]:
        """How many spans are still to be sent, and whether that is complete: counting stops after a while, and does not
        begin with a selection.
        """
        if self._only is not None:
            return 0, False
        until = time.monotonic() + _COUNTING
        found = [input_.left(self._positions[name], until) for name, input_ in self._inputs.items()]
        return sum(spans for spans, _ in found), all(complete for _, complete in found)

    def _make_sink(self) -> Sink:
        return make_sink(
            self._exporter,
            SinkContext(
                self._plan,
                self._sink_state,
                self._remember,
                self._problems.count,
                self._environ,
                self._problems.warn_once,
                lost=self._lose,
            ),
        )

    def _lose(self, text: str, number: int) -> None:
        self.lost += number
        self._problems.count(text, number)

    def _reached(self, name: str, position: Mapping[str, Any], sink_state: Mapping[str, Any]) -> None:
        self._positions[name] = position
        self._sink_state = sink_state
        self._remember(sink_state)

    def _remember(self, sink_state: Mapping[str, Any]) -> None:
        try:
            self._progress.save({**self._stored, **self._positions, "sink": sink_state})
        except OSError as error:
            self._problems.warn_once(
                f"{self._progress}: {error.strerror}; if this is interrupted, the next replay starts from the beginning"
            )

    def _damaged(self, text: str) -> None:
        self._problems.count("{count} lines or spans could not be read and were skipped", 1)
        if self._damages < _SHOWN:
            self._problems.warn_once(text)
        self._damages += 1


def _retried(timeout: float, on_failure: Callable[[str], None], action: Callable[[], T]) -> T:
    """The result of ``action``, with retries for ``timeout`` seconds; ``on_failure`` is called with each failure."""
    deadline = time.monotonic() + timeout
    backoff = Backoff()
    while True:
        try:
            return action()
        except (SettingError, RefusesAllError):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the next attempt may succeed
            failure = error
        message, asked = reason(failure), retry_after(failure)
        left = deadline - time.monotonic()
        if asked:
            message += f" (it asks for a retry after {asked:g} s)"
        if left <= asked:
            raise DeliveryError(message) from failure
        on_failure(message)
        time.sleep(min(max(backoff.next(), asked), left))


@contextlib.contextmanager
def held(folder: str, *, is_spool: bool) -> Iterator[None]:
    """Locks this folder against other replays and shippers. Raises TracingError if one is running there."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(PermissionError):  # the folder cannot be listed, only its files can be read
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TracingError(f"another replay is running in {folder!r}") from None
        if is_spool:
            stack.enter_context(_without_shipper(folder))
        yield


@contextlib.contextmanager
def _without_shipper(folder: str) -> Iterator[None]:
    try:
        lock = take_lock(folder)
    except OSError:  # not writable, so a shipper cannot use it either
        yield
        return
    if lock is None:
        figures = read(folder)
        failing = [each for each in figures.destinations if each.is_failing] if figures is not None else []
        text = f"a shipper is running for the spool {folder!r} and delivers it"
        if figures is not None and failing:
            text += f" once it can: {failing[0].error}; "
            if _has_ray_ended(folder):
                text += "Ray has ended here, so it gives up within about a minute: run this command again then"
            elif is_reached(folder, figures, failing[0].exporter):
                text += (
                    "if its settings are wrong, correct them with `ray-tracing-hooks configure`, and these spans are "
                    "delivered too"
                )
            else:
                text += "if that cannot be repaired, run this command again once Ray has ended here"
        raise TracingError(text)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, LOCK))
        os.close(lock)


def _has_ray_ended(folder: str) -> bool:
    """Whether nobody can configure the shipper of this spool any more."""
    try:
        raylet = ShipPlan.load(folder).raylet_socket
    except (OSError, ValueError):
        return False
    return raylet is not None and is_deserted(raylet)


def check(plan: ShipPlan, environ: Mapping[str, str]) -> None:
    """Make the sink of the plan, and close it again: nothing is sent. Raises TracingError if it cannot work now."""
    (exporter,) = plan.exporters
    # Invalid settings have been reported, and without a state there is nothing else to be said.
    context = SinkContext(plan, {}, lambda _state: None, lambda *_loss: None, environ, lambda _problem: None)
    make_sink(exporter, context).close()


class ReplayProgress:
    """The progress of replays of one folder to one exporter, for each destination."""

    def __init__(self, folder: str, plan: ShipPlan, environ: Mapping[str, str], selection: str) -> None:
        (exporter,) = plan.exporters
        self._destination = _destination(plan, environ) + (f" {selection}" if selection else "")
        label = re.sub(r"[^\w.-]", "_", exporter)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        path = hashlib.sha256(os.fsencode(os.path.realpath(folder))).hexdigest()[:16]
        self._beside = os.path.join(folder, f"{REPLAY_PREFIX}{label}.json")
        self._at_home = os.path.join(home, "ray-tracing-hooks", f"replay-{label}-{path}.json")

    def __str__(self) -> str:
        return f"cannot store the progress of the replay in {self._beside!r} or {self._at_home!r}"

    def load(self) -> dict[str, Any]:
        return mapping(self._all().get(self._destination))

    def save(self, progress: Mapping[str, Any]) -> None:
        """Raises OSError."""
        text = json.dumps({**self._all(), self._destination: progress}).encode()
        try:
            write_atomically(self._beside, text)
        except OSError:
            os.makedirs(os.path.dirname(self._at_home), mode=0o700, exist_ok=True)
            write_atomically(self._at_home, text)

    def _all(self) -> dict[str, Any]:
        found = []
        for path in (self._beside, self._at_home):
            with contextlib.suppress(OSError, ValueError):
                found.append((os.stat(path).st_mtime_ns, mapping(json.loads(read_file(path)))))
        return max(found, key=lambda each: each[0])[1] if found else {}


def mapping(found: Any) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return found if isinstance(found, dict) else {}


def _destination(plan: ShipPlan, environ: Mapping[str, str]) -> str:
    """A digest that identifies a destination, regardless of time-outs and tokens."""
    (exporter,) = plan.exporters
    identity = destination_of(exporter, plan, environ, lambda _problem: None).identity
    return hashlib.sha256(json.dumps(identity).encode("utf-8", "replace")).hexdigest()[:16]


def left_by_shipper(folder: str, plan: ShipPlan, *, anew: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The positions in the spool at which a first replay starts, and the state of the sink there.

    If the shipper that left the spool delivered to the same destination, these are where it stopped. Otherwise it is
    the beginning, but with the open spans whose segments are gone.
    """
    (exporter,) = plan.exporters
    with contextlib.suppress(OSError, ValueError):
        theirs = ShipPlan.load(folder)
        same = exporter in theirs.exporters and _same_place(exporter, plan, theirs)
        if same and not anew:
            return _shipped(folder, file_name(exporter)), _shipped(folder, file_name(exporter), "sink")
    begun: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if is_progress_file(name):
                for process, entry in _shipped(folder, name).items():
                    nothing = {"sequence": 0, "offset": 0, "openings": [], "in_order": False}
                    begun.setdefault(process, {**nothing, "interrupted": [], "maybe_ended": []})
                    begun[process]["openings"] += mapping(entry).get("openings", [])
                    begun[process]["in_order"] |= bool(mapping(entry).get("in_order"))
                    for key in ("interrupted", "maybe_ended"):
                        begun[process][key] += mapping(entry).get(key, [])
    return begun, {}


def _shipped(folder: str, name: str, part: str = "processes") -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError):
        return mapping(mapping(json.loads(read_file(os.path.join(folder, name)))).get(part))
    return {}


def _same_place(exporter: str, ours: ShipPlan, theirs: ShipPlan) -> bool:
    """Whether the other plan delivers there too. Of its environment, which is not stored, only the digest is known."""
    nothing: dict[str, str] = {}
    identities = [destination_of(exporter, plan, nothing, lambda _problem: None).identity for plan in (ours, theirs)]
    return identities[0] == identities[1] and (exporter == "local" or ours.environment == theirs.environment)
