"""Values of the types that programs define for themselves, as arguments, results and state of actors."""

import collections
import dataclasses
import enum
import importlib.util
import io
import pickle
import threading
import typing

import attrs
import numpy as np
import ray
import scenarios
from ray import cloudpickle
from ray.util import inspect_serializability
from scenarios import attempt, scenario


@dataclasses.dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 0
    tags: list[str] = dataclasses.field(default_factory=list, compare=False)

    def moved(self, by: int) -> "Point":
        return dataclasses.replace(self, x=self.x + by)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


@attrs.define
class Box:
    size: int = attrs.field(validator=attrs.validators.instance_of(int))
    inner: typing.Any = None


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Pair(typing.NamedTuple):
    first: int
    second: object


class Reduced:
    def __init__(self, value):
        self.value = value
        self.lock = threading.Lock()

    def __reduce__(self):
        return Reduced, (self.value,)


class Locked:
    """Cannot be pickled."""

    def __init__(self):
        self.lock = threading.Lock()


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.meta = cls.__name__
        return made


class Made(metaclass=Meta):
    def __init__(self, value):
        self.value = value


class Picky(Exception):
    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code, self.reason = code, reason

    def __reduce__(self):
        return Picky, (self.code, self.reason)


@ray.remote
def same(*values, **named):
    return [*values, *named.values()]


@ray.remote
def of_type(value):
    return [type(value).__module__, type(value).__qualname__, isinstance(value, type(value))]


@ray.remote
def raise_picky():
    raise Picky(4, "no")


@ray.remote
class Keeper:
    def __init__(self, kept, *, colour=Colour.RED):
        self.kept, self.colour = kept, colour

    def swap(self, new):
        old, self.kept = self.kept, new
        return old

    def coloured(self):
        return [self.colour is Colour.BLUE, repr(self.colour)]


VALUES = [
    Point(1, tags=["a"]),
    Box(1, inner=Point(2)),
    Colour.BLUE,
    Rights.READ | Rights.WRITE,
    Pair(1, Colour.RED),
    collections.OrderedDict(a=1),
    collections.defaultdict(list, a=[1]),
    collections.deque([1, 2], maxlen=3),
    {frozenset({1}), (1, 2)},
    (b"bytes", bytearray(b"x"), 2**100, 1 + 2j, None, ..., range(3), slice(1, 2)),
    float("inf"),
]


@scenario
def values_of_every_type():
    back = ray.get(same.remote(*VALUES))
    named = ray.get(same.remote(**{f"v{i}": value for i, value in enumerate(VALUES)}))
    kept = ray.get(same.remote(*[ray.put(value) for value in VALUES]))
    return [
        [before == after for before, after in zip(VALUES, back, strict=True)],
        [repr(value) for value in back] == [repr(value) for value in VALUES],
        named == VALUES,
        kept == VALUES,
        ray.get([of_type.remote(value) for value in VALUES]),
        back[2] is Colour.BLUE,
        back[0].moved(2).x,
    ]


@scenario
def arrays():
    array = np.arange(300_000, dtype="float64").reshape(3, -1)
    back, small, empty = ray.get(same.remote(array, np.array(["a"], dtype=object), named=np.zeros((0, 2))))
    return [
        bool((back == array).all()),
        [back.flags.writeable, str(back.dtype), back.shape],
        [small.tolist(), empty.shape],
        attempt(lambda: back.__setitem__((0, 0), 1)),
    ]


@scenario
def state_of_actors():
    keeper = Keeper.remote(Point(1), colour=Colour.BLUE)
    first = ray.get(keeper.swap.remote(Box(2)))
    second = ray.get(keeper.swap.remote(Made(3)))
    third = ray.get(keeper.swap.remote(None))
    coloured = ray.get(keeper.coloured.remote())
    return [repr(first), repr(second), [third.value, third.meta, type(third) is Made], coloured]


@scenario
def values_that_say_how_they_are_pickled():
    error = attempt(lambda: ray.get(raise_picky.remote()))
    try:
        ray.get(raise_picky.remote())
    except Picky as caught:
        kind = [caught.code, caught.reason]
    return [
        ray.get(same.remote(Reduced(5)))[0].value,
        error,
        kind,
        attempt(lambda: same.remote(Locked())),
        attempt(lambda: ray.put(Locked())),
        attempt(lambda: Keeper.remote(kept=Locked())),
        attempt(lambda: ray.get(same.remote(Slotted(3)))),
    ]


@scenario
def custom_serializers():
    ray.util.register_serializer(Locked, serializer=type, deserializer=lambda cls: [cls.__name__])
    try:
        through = ray.get(same.remote(Locked(), [Locked()]))
    finally:
        ray.util.deregister_serializer(Locked)
    return [through, attempt(lambda: ray.put(Locked()))]


@scenario
def classes_and_functions_as_values():
    def outer():
        count = 0

        def step(by):
            nonlocal count
            count += by
            return count

        return step

    local = type("Local", (Made,), {"__module__": "__main__", "twice": lambda self: self.value * 2})

    @ray.remote
    def call(function, *args):
        return function(*args)

    @ray.remote
    def make(cls):
        return cls(4).twice()

    @ray.remote
    def hand_over(function, value):
        return ray.get(function.remote(value))

    return [
        ray.get(call.remote(outer(), 3)),
        ray.get(make.remote(local)),
        ray.get(hand_over.remote(of_type, Point(1))),
        ray.get(ray.get(call.remote(lambda actor: actor.swap.remote(1), Keeper.remote("k")))),
        [len(cloudpickle.dumps(each)) for each in (Point(1), outer(), local, Colour.RED)],
        len(cloudpickle.dumps(same)) > 0 and pickle.loads(cloudpickle.dumps(Point))(1) == Point(1),
    ]


@scenario
def what_can_be_serialized():
    out = io.StringIO()
    lock = Locked()

    def uses():
        return lock

    good = inspect_serializability(Point(1), name="point", print_file=out)
    bad, failures = inspect_serializability(uses, name="uses", print_file=out)
    inspect_serializability(lock)
    return [good[0], bad, [scenarios.same_in_each_run(str(failure)) for failure in failures], same_text(out)]


def same_text(out):
    return scenarios.same_in_each_run(out.getvalue())


if importlib.util.find_spec("pydantic"):
    import pydantic

    class Item(pydantic.BaseModel):
        name: str
        price: float = pydantic.Field(gt=0)
        colour: Colour = Colour.RED
        parts: list["Item"] = []
        _secret: int = pydantic.PrivateAttr(default=1)

        @property
        def total(self):
            return self.price + sum(part.total for part in self.parts)

    @pydantic.dataclasses.dataclass
    class Order:
        item: Item
        count: int = 1

    @ray.remote
    class Shop:
        def __init__(self, first: Item):
            self.items = {first.name: first}

        def order(self, name: str, count: int = 1) -> Order:
            return Order(self.items[name], count)

        def add(self, raw: dict) -> Item:
            item = Item(**raw)
            self.items[item.name] = item
            return item

    @scenario
    def pydantic_models():
        item = Item(name="a", price="1.5", parts=[{"name": "b", "price": 1}])
        item._secret = 7
        shop = Shop.remote(item)
        back = ray.get(same.remote(item, named=[item]))
        order = ray.get(shop.order.remote("a", count=2))
        return [
            back == [item, [item]],
            back[0]._secret,
            repr(back[0]),
            ray.get(shop.add.remote({"name": "c", "price": 2, "colour": "blue"})).total,
            [order.count, order.item.total, type(order) is Order],
            attempt(lambda: ray.get(shop.add.remote({"name": "d", "price": -1}))),
            attempt(lambda: ray.get(shop.order.remote("none"))),
            attempt(lambda: Shop.remote(Item(name=1, price=0))),
            ray.get(of_type.remote(Item)),
        ]


if __name__ == "__main__":
    scenarios.run()
