"""Runs with a known schedule: programs made at random, simulated as Ray runs them, and why each call started when.

The simulation knows for each call what its start waited for, and for each wait what ended it. So it computes the
critical path of its own run, from causes instead of spans. Times are nanoseconds since the run began.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

from hand_made import MS, Call, HandMade

from ray_tracing_hooks import names
from ray_tracing_hooks._insight.analysis.critical_path import DELIVERY, GET_TIME, RETRYING, RUN, SCHEDULING

PARTS = "actor,get,task,wait"


@dataclass
class Shape:
    """What a program is made of."""

    steps: int = 12
    """How many things the driver does."""
    depth: int = 2
    """How deep tasks call tasks."""
    workers: int = 2
    """How many workers run the tasks of one depth."""
    slots: tuple[int, ...] = (1, 2, 4)
    """How many methods at once actors may run."""
    nodes: int = 2
    clocks: tuple[int, ...] = (0,)
    """How far the clocks of the nodes of workers may be ahead, in nanoseconds."""
    lag: int = 3 * MS
    """The longest that Ray takes to start a call, or to hand on a result."""


@dataclass(eq=False)
class Frame:
    """A driver, or one attempt of a call."""

    name: str
    start: int
    span: str
    where: dict[str, Any]
    kind: str = RUN
    """What the time from its cause to its start is."""
    cause: tuple[Frame, int] | None = None
    """What its start waited for last, and when that was done."""
    end: int = 0
    waits: list[tuple[int, int, Frame, int]] = field(default_factory=list)
    """Start and end of each wait, and what made the last object that it was for, and when."""


@dataclass(eq=False)
class Future:
    """The result of a call."""

    call: Call
    made: tuple[Frame, int] | None = None
    waiting: list[Callable[[], None]] = field(default_factory=list)


class Lane:
    """What has slots: an actor, or the workers for tasks of one depth. Calls take them in the order they come in."""

    def __init__(self, simulation: Simulation, slots: int, lag: int) -> None:
        self.simulation, self.lag, self.slots = simulation, lag, slots
        self.running: set[Frame] = set()
        self.most = 0
        """The most that ran at once."""
        self.free = list(range(slots))
        self.queue: list[Callable[[int, tuple[Frame, int]], None]] = []

    def take(self, start: Callable[[int, tuple[Frame, int]], None], cause: tuple[Frame, int]) -> None:
        """Start something in a slot as soon as one is free; ``start`` gets the slot, and what it waited for last."""
        if self.free and not self.queue:
            slot = self.free.pop(0)
            self.simulation.after(self.lag, lambda: start(slot, cause))
        else:
            self.queue.append(start)

    def begin(self, frame: Frame) -> None:
        self.running.add(frame)
        self.most = max(self.most, len(self.running))

    def release(self, slot: int, by: Frame) -> None:
        """A call that held the slot has ended: the next one takes it."""
        self.running.remove(by)
        if self.queue:
            start = self.queue.pop(0)
            now = self.simulation.now
            self.simulation.after(self.lag, lambda: start(slot, (by, now)))
        else:
            self.free.append(slot)


@dataclass(eq=False)
class Actor:
    actor_id: str
    lane: Lane
    slots: int
    where: dict[str, Any]
    number: int
    created: Future | None = None
    before: dict[Frame, list[Future]] = field(default_factory=dict)
    """What the calls that each caller has made so far had to wait for, if they run in their order."""


Body = Generator[tuple[Any, ...], None, None]


class Simulation:
    """A run of a program that ``random`` makes; ``run`` has its spans."""

    def __init__(self, random: Random, shape: Shape) -> None:
        self.random, self.shape = random, shape
        self.now = 0
        self.run = HandMade()
        self.run.parts = PARTS
        self.lanes: list[Lane] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._clock = [0, *(random.choice(shape.clocks) for _ in range(shape.nodes))]
        self._places: dict[str, dict[str, Any]] = {}
        self._pools = [self._lane(shape.workers) for _ in range(shape.depth + 1)]
        self.driver = Frame("job.py", 0, self.run.driver(0, 0), {})
        self._go(self._body(self.driver, 0, shape.steps), self._driver_ended)
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()

    # --- time ---------------------------------------------------------------------------------------------------------

    def after(self, delay: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._count), event))

    def _some(self, most: int) -> int:
        return self.random.randint(1, most)

    def _go(self, body: Body, ended: Callable[[], None]) -> None:
        def step() -> None:
            try:
                delay, futures, enough = next(body)
            except StopIteration:
                ended()
                return
            if not futures:
                self.after(delay, step)
                return
            missing = [future for future in futures if future.made is None]
            many = enough - (len(futures) - len(missing))
            if many <= 0:
                self.after(delay, step)
                return
            left = [many]

            def made() -> None:
                left[0] -= 1
                if left[0] == 0:
                    self.after(delay, step)

            for future in missing:
                future.waiting.append(made)

        step()

    # --- programs -----------------------------------------------------------------------------------------------------

    def _body(self, frame: Frame, depth: int, steps: int) -> Body:
        """The code of a driver or task."""
        random = self.random
        refs: list[Future] = []
        actors: list[Actor] = []
        for _ in range(steps):
            yield self._some(20 * MS), (), 0
            what = random.random()
            if what < 0.15 or (what < 0.5 and not actors and depth == 0):
                actors.append(self._create(frame))
                yield self._some(MS), (), 0
            elif what < 0.7 or not refs:
                for _ in range(random.choice((1, 1, 3, 8))):
                    took = self._some(MS)
                    self._call(frame, refs, actors, depth, took)
                    yield took, (), 0
            else:
                yield from self._wait(frame, refs)
        while refs and random.random() < 0.9:  # otherwise nobody waits for the rest
            yield from self._wait(frame, refs)
        yield self._some(20 * MS), (), 0

    def _wait(self, frame: Frame, refs: list[Future]) -> Body:
        chosen = self.random.sample(refs, self.random.randint(1, min(len(refs), 60)))
        is_some = self.random.random() < 0.3
        enough = self.random.randint(1, len(chosen)) if is_some else len(chosen)
        begun = self.now
        yield self._some(self.shape.lag), chosen, enough
        # The first to be made: those were there when it had enough.
        chosen.sort(key=lambda each: (each.made is None, each.made[1] if each.made else 0))
        ready = chosen[:enough]
        frame.waits.append((begun, self.now, *(ready[-1].made or ())))
        times = begun / MS, self.now / MS
        if is_some:
            self.run.wait(
                frame.span, [each.call for each in chosen], *times, ready=[each.call for each in ready], **frame.where
            )
        else:
            self.run.get(frame.span, [each.call for each in chosen], *times, **frame.where)
        for each in ready:
            refs.remove(each)

    def _create(self, frame: Frame) -> Actor:
        number, slots = next(self._count), self.random.choice(self.shape.slots)
        where = self._place(f"actor{number}")
        actor = Actor(self.run.actor(), self._lane(slots), slots, where, number)
        call = self.run.submit(frame.span, f"A{number}.__init__", self.now / MS, actor=actor.actor_id, **frame.where)
        actor.created = Future(call)
        cause = (frame, self.now)
        creating = partial(self._start, actor.created, SCHEDULING, cause, where, self._compute(), None)
        self.after(self._some(30 * MS), creating)
        return actor

    def _call(self, frame: Frame, refs: list[Future], actors: list[Actor], depth: int, took: int) -> None:
        random = self.random
        actor = random.choice(actors) if actors and random.random() < 0.6 else None
        is_leaf = depth >= self.shape.depth or actor is not None
        function = f"A{actor.number}.f" if actor else f"{'leaf' if is_leaf else 'task'}{depth}"
        arguments = random.sample(refs, min(len(refs), random.choice((0, 0, 0, 1, 2))))
        call = self.run.submit(
            frame.span,
            function,
            self.now / MS,
            took / MS,
            actor=actor.actor_id if actor else "",
            arguments=[each.call.object() for each in arguments],
            **frame.where,
        )
        future = Future(call)
        refs.append(future)
        needs = [*arguments, *([actor.created] if actor and actor.created else [])]
        fails = actor is None and random.random() < 0.2

        def received() -> None:
            cause = (frame, self.now)
            left = [each for each in needs if each.made is None]
            pending = [len(left)]

            def ready() -> None:
                made = [cause, *(each.made for each in needs if each.made)]
                last = max(made, key=itemgetter(1))
                if actor is None:
                    self._queue_task(future, depth, last, is_leaf=is_leaf, fails=fails)
                else:
                    self._queue_method(future, actor, depth, last)

            def one() -> None:
                pending[0] -= 1
                if pending[0] == 0:
                    ready()

            for each in left:
                each.waiting.append(one)
            if not left:
                ready()

        if actor is not None and actor.slots == 1:
            # Ray sends the calls of one caller in their order, whatever each waits for.
            needs = actor.before[frame] = [*dict.fromkeys([*actor.before.get(frame, ()), *needs])]
        self.after(took, received)

    def _queue_task(self, future: Future, depth: int, cause: tuple[Frame, int], *, is_leaf: bool, fails: bool) -> None:
        pool = self._pools[depth]

        def start(slot: int, cause: tuple[Frame, int]) -> None:
            name = f"d{depth}w{slot}"
            where = self._places.get(name) or self._places.setdefault(name, self._place(name))
            own = self._compute() if is_leaf or fails else self._within(depth)
            self._start(future, SCHEDULING, cause, where, own, (pool, slot), fails=fails)

        pool.take(start, cause)

    def _retry(self, future: Future, failed: Frame, at: int) -> None:
        # On a worker of its own, so that only the delay separates the two.
        where = self._place(f"again{next(self._count)}")
        self._start(future, RETRYING, (failed, at), where, self._compute(), None, attributes={"ray.attempt": 1})

    def _queue_method(self, future: Future, actor: Actor, depth: int, cause: tuple[Frame, int]) -> None:
        slots = {"ray.max_concurrency": actor.slots} if actor.slots > 1 else {}

        def start(slot: int, cause: tuple[Frame, int]) -> None:
            held = actor.lane, slot
            own = self._within(depth) if depth < self.shape.depth and self.random.random() < 0.3 else self._compute()
            self._start(future, DELIVERY, cause, actor.where, own, held, attributes=slots)

        actor.lane.take(start, cause)

    def _within(self, depth: int) -> Callable[[Frame], Body]:
        """The code of a call that makes calls."""
        return lambda frame: self._body(frame, depth + 1, self._some(3))

    def _compute(self) -> Callable[[Frame], Body]:
        took = self._some(60 * MS)

        def body(_frame: Frame) -> Body:
            yield took, (), 0

        return body

    def _start(
        self,
        future: Future,
        kind: str,
        cause: tuple[Frame, int],
        where: dict[str, Any],
        body: Callable[[Frame], Body],
        held: tuple[Lane, int] | None,
        *,
        attributes: dict[str, Any] | None = None,
        fails: bool = False,
    ) -> None:
        """Start an attempt of a call now, and what follows when it ends."""
        error = "ValueError" if fails else ""
        span = self.run.run(future.call, self.now / MS, self.now / MS, attributes=attributes, error=error, **where)
        described = self.run.spans[-1]
        frame = Frame(future.call.function, self.now, span, where, kind, cause)
        if held is not None:
            held[0].begin(frame)

        def ended() -> None:
            described.end_ns += self.now - frame.start
            if held is not None:
                held[0].release(held[1], frame)
            if fails:
                self.after(self._some(5 * MS), partial(self._retry, future, frame, self.now))
                return
            future.made = (frame, self.now)
            for each in future.waiting:
                each()

        self._go(body(frame), ended)

    def _driver_ended(self) -> None:
        self.driver.end = self.now
        described = next(span for span in self.run.spans if span.span_id == self.driver.span)
        described.end_ns += self.now

    def _lane(self, slots: int) -> Lane:
        lane = Lane(self, slots, self._some(self.shape.lag))
        self.lanes.append(lane)
        return lane

    def _place(self, worker: str) -> dict[str, Any]:
        node = self.random.randrange(self.shape.nodes) + 1
        return {"worker": worker, "node": f"n{node + 1}", "clock": self._clock[node] / MS}

    # --- what was not recorded ----------------------------------------------------------------------------------------

    def exclude(self, functions: Collection[str]) -> None:
        """Calls of these make no spans, but pass on the span of their caller."""
        above: dict[str, str] = {}
        for span in self.run.spans:
            name = span.name.removesuffix(" ray.remote").removesuffix(" ray.remote_worker")
            if name in functions:
                above[span.span_id] = span.parent_id
        for span in self.run.spans:
            while span.parent_id in above:
                span.parent_id = above[span.parent_id]
        self.run.spans = [span for span in self.run.spans if span.span_id not in above]

    def lose(self, worker: str) -> None:
        """The spans of a worker are on a node whose files are missing."""
        self.run.spans = [span for span in self.run.spans if span.attributes.get(names.RAY_WORKER_ID) != worker]

    @property
    def functions(self) -> list[str]:
        """The names of all functions that were called."""
        return sorted(
            {
                str(span.attributes[names.RAY_FUNCTION])
                for span in self.run.spans
                if names.RAY_FUNCTION in span.attributes
            }
        )

    @property
    def workers(self) -> list[str]:
        """Where calls ran."""
        return sorted({str(span.attributes[names.RAY_WORKER_ID]) for span in self.run.spans} - {"driver"})

    # --- the path -----------------------------------------------------------------------------------------------------

    def path(self) -> tuple[Counter[str], Counter[str]]:
        """The time on the critical path, by kind (``submit`` is part of ``run``) and by function."""
        kinds: Counter[str] = Counter()
        functions: Counter[str] = Counter()
        here: Frame = self.driver
        time = here.end
        while True:
            wait = max((each for each in here.waits if each[1] <= time), key=lambda each: each[1], default=None)
            until = wait[1] if wait is not None else here.start
            kinds[RUN] += time - until
            functions[here.name] += time - until
            if wait is None:
                if here.cause is None:
                    return kinds, functions
                before, time = here.cause
                kinds[here.kind] += here.start - time
                here = before
                continue
            begun, ended, maker, made = wait
            kinds[GET_TIME] += ended - max(begun, made)
            here, time = (maker, made) if made > begun else (here, begun)
