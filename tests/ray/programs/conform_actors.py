"""Actors: classes of every kind, their methods and handles, names and lifetimes, ends and new beginnings."""

import abc
import dataclasses
import functools
import gc
import inspect
import os
import subprocess
import sys
import threading
import typing

import ray
import scenarios
from scenarios import attempt, scenario
from shared import eventually


class Base:
    made = 0

    def __init__(self, value=0):
        type(self).made += 1
        self.value = value

    def inherited(self):
        return f"inherited {self.value}"

    def overridden(self):
        return "base"

    @property
    def doubled(self):
        return 2 * self.value

    def read_doubled(self):
        return self.doubled

    @staticmethod
    def static(value):
        return value

    @classmethod
    def of_class(cls, *values):
        return [cls.__name__, *values]

    def __call__(self, value):
        return ["called", value]

    def __len__(self):
        return 3

    def __repr__(self):
        return f"Base({self.value})"

    def _private(self):
        return "private"

    def __mangled(self):
        return "mangled"

    def call_mangled(self):
        return self.__mangled()


def logged(method):
    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        return [method.__name__, method(self, *args, **kwargs)]

    return wrapper


def bare(method):
    return lambda self, *args, **kwargs: method(self, *args, **kwargs)


@ray.remote(num_cpus=0)
class Derived(Base):
    """An actor."""

    def __init__(self, value=0, *, more=1):
        """Its creation."""
        super().__init__(value)
        self.more = more

    def overridden(self, extra=None):
        """A method."""
        return ["derived", super().overridden(), extra]

    @logged
    def decorated(self, value: int = 1) -> list:
        return value

    @bare
    def decorated_barely(self, value):
        return value

    @ray.method(num_returns=2)
    def two(self):
        return 1, 2

    @ray.method(num_returns=1)
    def one(self, *args, **kwargs):
        return [args, kwargs]

    @ray.method(enable_task_events=False)
    def unseen(self):
        return "unseen"

    partial = functools.partialmethod(overridden, "partial")
    unbound = lambda self, value: ["lambda", value]  # noqa: E731

    def itself(self):
        return ray.get_runtime_context().current_actor

    def set(self, value):
        self.value = value
        return self.value

    def give(self):
        return self.value

    def call(self, handle, name, *args):
        return ray.get(getattr(handle, name).remote(*args))

    def pid(self):
        return os.getpid()

    def title(self):
        with open("/proc/self/cmdline") as file:
            return file.read().rstrip("\0 ")

    def exits(self):
        ray.actor.exit_actor()

    def sys_exits(self, code):
        sys.exit(code)

    def dies(self):
        os._exit(1)


@functools.cache
def derived():
    return Derived.remote(5, more=2)


@scenario
def methods_of_every_kind():
    actor = derived()
    calls = {
        "inherited": lambda: actor.inherited.remote(),
        "overridden": lambda: actor.overridden.remote(extra=1),
        "property": lambda: actor.read_doubled.remote(),
        "property remote": lambda: actor.doubled.remote(),
        "static": lambda: actor.static.remote(1),
        "of_class": lambda: actor.of_class.remote(1, 2),
        "call": lambda: actor.__call__.remote(1),
        "len": lambda: actor.__len__.remote(),
        "private": lambda: actor._private.remote(),
        "mangled": lambda: actor.call_mangled.remote(),
        "decorated": lambda: actor.decorated.remote(value=3),
        "decorated wrongly": lambda: actor.decorated.remote(3, 4),
        "decorated barely": lambda: actor.decorated_barely.remote(3),
        "two": lambda: actor.two.remote(),
        "one": lambda: actor.one.remote(1, a=2),
        "one as two": lambda: actor.two.options(num_returns=1).remote(),
        "unseen": lambda: actor.unseen.remote(),
        "partial": lambda: actor.partial.remote(),
        "lambda": lambda: actor.unbound.remote(1),
        "named": lambda: actor.give.options(name="a name").remote(),
        "missing": lambda: actor.no_such.remote(),
        "ready": lambda: actor.__ray_ready__.remote(),
        "ray call": lambda: actor.__ray_call__.remote(lambda self, *args, **kwargs: [self.value, args, kwargs], 1, a=2),
        "ray call fails": lambda: actor.__ray_call__.remote(lambda self: self.no_such),
    }
    return {name: attempt(lambda call=call: ray.get(call())) for name, call in calls.items()}


@scenario
def classes_of_every_kind():
    class Abstract(abc.ABC):
        @abc.abstractmethod
        def work(self):
            """To be defined."""

    @ray.remote(num_cpus=0)
    class Concrete(Abstract):
        def work(self):
            return "worked"

    Item = typing.TypeVar("Item")

    @ray.remote(num_cpus=0)
    class Generic(typing.Generic[Item]):
        def give(self, item: Item) -> Item:
            return item

    @ray.remote(num_cpus=0)
    class Slotted:
        __slots__ = ("value",)

        def __init__(self, value):
            self.value = value

        def give(self):
            return self.value

    @ray.remote(num_cpus=0)
    @dataclasses.dataclass
    class Data:
        x: int
        y: int = 2

        def total(self):
            return self.x + self.y

    @ray.remote(num_cpus=0)
    class WithNew:
        def __new__(cls, value=None):
            made = super().__new__(cls)
            made.by_new = value
            return made

        def __init__(self, value):
            self.by_init = value

        def both(self):
            return [self.by_new, self.by_init]

    class Mixin:
        def mixed(self):
            return "mixed"

    # All at once, since each is a process.
    actors = [Concrete.remote(), Generic.remote(), Slotted.remote(1), Data.remote(1), WithNew.remote(1)]
    made = ray.remote(num_cpus=0)(type("Made", (Mixin, Base), {})).remote(1)
    concrete, generic, slotted, data, with_new = actors
    return [
        attempt(lambda: ray.remote(Abstract).remote()) and "made",
        ray.get([concrete.work.remote(), generic.give.remote([1]), slotted.give.remote(), data.total.remote()]),
        ray.get(with_new.both.remote()),
        [type(made).__name__, ray.get(made.mixed.remote()), ray.get(made.of_class.remote())],
        attempt(lambda: type("Sub", (Derived,), {})),
        attempt(lambda: ray.remote(Derived)),
        attempt(lambda: ray.remote(1)),
        attempt(lambda: Derived()),
        attempt(lambda: Derived.give(1)),
    ]


@scenario
def how_they_look():
    actor = derived()
    methods = ("overridden", "decorated", "static", "of_class", "two", "unbound", "set")
    return [
        [repr(scenarios.same_in_each_run(repr(thing))) for thing in (actor, actor.give)],
        [type(thing).__name__ for thing in (actor, actor.give, actor.give.options(), Derived, Derived.options())],
        {
            name: str(
                inspect.signature(getattr(Base, name, Derived.__ray_metadata__.modified_class.__dict__.get(name)))
            )
            for name in methods
        },
        {name: str(inspect.signature(getattr(actor, name).remote)) for name in methods},
        str(inspect.signature(Derived.remote)),
        [Derived.__doc__, Derived.__name__ if hasattr(Derived, "__name__") else None, Derived.__module__],
        [getattr(actor, name).__doc__ for name in methods],
        sorted(name for name in dir(actor) if not name.startswith("__")),
        sorted(name for name in dir(actor.give) if not name.startswith("__")),
        {name: str(value) for name, value in actor._ray_method_signatures.items()},
        hasattr(actor, "no_such"),
        ray.get(actor.title.remote()),
        ray.get(actor.title.options(name="titled").remote()),
        [actor == derived(), actor != Derived, hash(actor) == hash(derived()), actor._actor_id == derived()._actor_id],
    ]


@scenario
def creations_that_fail():
    @ray.remote(num_cpus=0)
    class Fails:
        def __init__(self, value):
            raise ValueError(f"no actor of {value}")

        def never(self):
            pass

    @ray.remote(num_cpus=0)
    class FailsAsync:
        def __init__(self):
            raise KeyError("no async actor")

        async def never(self):
            pass

    failing, asynchronous = Fails.remote(1), FailsAsync.remote()
    calls = failing.never.remote(), failing.__ray_ready__.remote(), asynchronous.never.remote()
    return [attempt(lambda: ray.get(call)) for call in calls]


@scenario
def handles_passed_around():
    actor = derived()

    @ray.remote
    def use(handle):
        return ray.get(handle.set.remote(7))

    @ray.remote
    def use_nested(holder):
        return ray.get(holder["handles"][0].give.remote())

    @ray.remote
    def use_closure():
        return ray.get(actor.give.remote())

    @ray.remote
    def use_method(method):
        return ray.get(method.remote())

    @ray.remote
    def use_class(actor_class):
        made = actor_class.remote(3)
        return [ray.get(made.give.remote()), actor_class.__ray_metadata__.class_name]

    @ray.remote
    def make():
        return Derived.remote(9)

    @dataclasses.dataclass
    class Holder:
        handle: typing.Any

        def use(self):
            return ray.get(self.handle.give.remote())

    made = ray.get(make.remote())
    itself = ray.get(actor.itself.remote())
    return [
        ray.get(use.remote(actor)),
        ray.get(use_nested.remote({"handles": (actor,)})),
        ray.get(use_closure.remote()),
        attempt(lambda: ray.get(use_method.remote(actor.give))),
        ray.get(use_class.remote(Derived)),
        ray.get(made.give.remote()),
        ray.get(ray.remote(lambda holder: holder.use()).remote(Holder(actor))),
        ray.get(ray.get(ray.put([actor]))[0].give.remote()),
        [itself == actor, type(itself).__name__, ray.get(itself.give.remote())],
        ray.get(actor.call.remote(made, "set", 4)),
        attempt(lambda: ray.get(actor.call.remote(made, "no_such"))),
    ]


@scenario
def named():
    name = f"conform {os.getpid()}"
    actor = Derived.options(name=name, namespace="one").remote(1)
    again = Derived.options(name=name, namespace="one", get_if_exists=True).remote(2)
    other = Derived.options(name=name, namespace="two", get_if_exists=True).remote(3)
    out = [
        ray.get(again.give.remote()),
        ray.get(other.give.remote()),
        again == actor,
        ray.get(ray.get_actor(name, namespace="one").inherited.remote()),
        attempt(lambda: ray.get_actor(name))[0],
        attempt(lambda: ray.get_actor("no such", namespace="one")),
        [
            text.replace(str(os.getpid()), "?") if isinstance(text, str) else text
            for text in attempt(lambda: Derived.options(name=name, namespace="one").remote(1))[:3]
        ],
        attempt(lambda: Derived.options(name="").remote()),
        attempt(lambda: Derived.options(name=1).remote()),
        attempt(lambda: Derived.options(get_if_exists=True).remote()),
        sorted(
            entry["namespace"] for entry in ray.util.list_named_actors(all_namespaces=True) if entry["name"] == name
        ),
    ]
    del actor, again
    gc.collect()
    out.append(eventually(lambda: attempt(lambda: ray.get_actor(name, namespace="one") and 0) != 0))
    return out


OTHER_DRIVER = """
import ray, sys
ray.init(address=sys.argv[1], namespace=sys.argv[2], log_to_driver=False)
actor = ray.get_actor(sys.argv[3])
print("SAID", ray.get(actor.set.remote(ray.get(actor.give.remote()) + 1)), ray.get(actor.title.remote()),
      [value for value in ray.get([actor.two.remote()[1], actor.one.remote(1, a=b"2")])])
try:
    actor.set.remote()
except TypeError as error:
    print("SAID", error)
"""


@scenario
def detached_and_used_by_another_driver():
    name = f"detached {os.getpid()}"
    actor = Derived.options(name=name, namespace="conform", lifetime="detached").remote(1)
    ray.get(actor.__ray_ready__.remote())
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        OTHER_DRIVER,
        ray.get_runtime_context().gcs_address,
        "conform",
        name,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    out = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    out.append(done.stderr[-2000:] if done.returncode else "ended well")
    del actor
    out.append(ray.get(ray.get_actor(name, namespace="conform").give.remote()))
    ray.kill(ray.get_actor(name, namespace="conform"))
    out.append(eventually(lambda: isinstance(attempt(lambda: ray.get_actor(name, namespace="conform")), list)))
    return out


@scenario
def killed():
    actor, restarting = Derived.remote(), Derived.options(max_restarts=1).remote(1)
    ray.get([actor.give.remote(), restarting.set.remote(2)])
    ray.kill(actor)
    ray.kill(restarting, no_restart=False)

    def back():
        return attempt(lambda: ray.get(restarting.give.remote())) == 1

    return [
        eventually(lambda: attempt(lambda: ray.get(actor.give.remote())) != 0),
        attempt(lambda: ray.get(actor.give.remote()))[:2],
        attempt(lambda: ray.kill(actor)),
        attempt(lambda: ray.kill("not an actor")),
        eventually(back),
    ]


@scenario
def restarted():
    @ray.remote(num_cpus=0, max_restarts=1, max_task_retries=1)
    class Restarting:
        def __init__(self, *args, **kwargs):
            self.given = [args, kwargs]
            self.calls = 0

        def die_once(self):
            context = ray.get_runtime_context()
            if not context.was_current_actor_reconstructed:
                os._exit(1)
            return [context.was_current_actor_reconstructed, self.calls]

        @ray.method(max_task_retries=0)
        def die(self):
            os._exit(1)

        def state(self):
            self.calls += 1
            return [self.given, self.calls]

    actor = Restarting.remote(1, key=[2])
    return [
        ray.get(actor.state.remote()),
        ray.get(actor.die_once.remote()),
        ray.get(actor.state.remote()),
        attempt(lambda: ray.get(actor.die.remote()))[:2],
        attempt(lambda: ray.get(actor.state.remote()))[:2],
    ]


@scenario
def methods_retried():
    @ray.remote(num_cpus=0)
    class Flaky:
        def __init__(self):
            self.calls = 0

        @ray.method(max_task_retries=3, retry_exceptions=[KeyError])
        def flaky(self, error):
            self.calls += 1
            if self.calls < 3:
                raise error
            return self.calls

        @ray.method(max_task_retries=2, retry_exceptions=True)
        def always(self):
            self.calls += 1
            raise ValueError(f"call {self.calls}")

        async def unused(self):
            pass

        @ray.method(max_task_retries=3, retry_exceptions=True)
        async def async_flaky(self):
            self.calls += 1
            if self.calls < 3:
                raise KeyError("again")
            return self.calls

    # An actor for each, since what is retried may come before or after another call.
    one, two, three, four = (Flaky.remote() for _ in range(4))
    calls = [one.flaky.remote(KeyError("retried")), two.always.remote(), three.flaky.remote(ValueError("not retried"))]
    return [attempt(lambda: ray.get(call)) for call in (*calls, four.async_flaky.remote())]


@scenario
def ended_on_purpose():
    @ray.remote(num_cpus=0)
    class Asynchronous:
        async def exits(self):
            ray.actor.exit_actor()

        def sync_exits(self):
            ray.actor.exit_actor()

        async def give(self):
            return 1

    ways = [("exits",), ("sys_exits", 0), ("sys_exits", 1), ("dies",)]
    actors = [*((Derived.remote(), *way) for way in ways)]
    actors += [(Asynchronous.remote(), name) for name in ("exits", "sync_exits")]
    out = []
    for actor, name, *args in actors:
        out.append([attempt(lambda: ray.get(getattr(actor, name).remote(*args)))[:2]])
        out[-1].append(attempt(lambda: ray.get(actor.give.remote()))[:2])
    actor = Derived.remote()
    ray.get(actor.give.remote())
    actor.__ray_terminate__.remote()
    out.append(eventually(lambda: isinstance(attempt(lambda: ray.get(actor.give.remote())), list)))
    out.append(attempt(lambda: ray.actor.exit_actor()))
    return out


@scenario
def out_of_scope():
    """What was submitted is still done, then the process goes."""
    pid = ray.get(Derived.remote().pid.remote())
    actor = Derived.remote()
    other_pid, last = ray.get(actor.pid.remote()), actor.set.remote("last")
    del actor
    gc.collect()

    def gone(number):
        return not os.path.exists(f"/proc/{number}")

    return [ray.get(last), eventually(lambda: gone(pid)), eventually(lambda: gone(other_pid))]


@scenario
def many_calls_from_threads():
    actor, out = derived(), []

    def work():
        out.append(ray.get([actor.static.remote(number) for number in range(50)]) == list(range(50)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return out


if __name__ == "__main__":
    scenarios.run()
