"""Classes of errors that say of themselves what they like, or refuse to."""

import builtins
import dataclasses
import threading


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int = 5

    def __reduce__(self):
        return type(self), (self.code,)


class Unchangeable(Exception):
    def __setattr__(self, name, value):
        raise AttributeError(f"{name} cannot be set")

    __delattr__ = __setattr__


class FrozenSlots(Unchangeable):
    __slots__ = ("code",)


class OwnTraceback(Exception):
    __traceback__ = "mine"


class RaisingTraceback(Exception):
    @property
    def __traceback__(self):
        raise RuntimeError("no traceback")


class OwnWithTraceback(Exception):
    def with_traceback(self, _):
        raise RuntimeError("no other traceback")


class RaisingClass(Exception):
    @property
    def __class__(self):
        raise RuntimeError("no class")


class RaisingCause(Exception):
    @property
    def __cause__(self):
        raise RuntimeError("no cause")

    @property
    def __notes__(self):
        raise RuntimeError("no notes")


class RaisingAttributes(Exception):
    """Says nothing of itself but what any object has."""

    def __getattribute__(self, name):
        if name in {"__dict__", "__traceback__", "__cause__", "__context__", "__notes__", "cause", "code"}:
            raise RuntimeError(f"no {name}")
        return super().__getattribute__(name)


class RaisingGetattr(Exception):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


class Unequal(Exception):
    def __eq__(self, other):
        raise RuntimeError("not to be compared")

    __ne__ = __eq__

    def __hash__(self):
        raise RuntimeError("not to be hashed")


class Untrue(Exception):
    def __bool__(self):
        raise RuntimeError("neither true nor false")

    __len__ = __bool__


class BadlyUnprintable(Exception):
    def __str__(self):
        raise BaseException("no text")

    __repr__ = __str__


class Text(str):
    __slots__ = ()

    def __len__(self):
        raise RuntimeError("no length")

    __getitem__ = encode = split = __format__ = __len__


class OddText(Exception):
    def __str__(self):
        return Text("odd")


class RaisingReduce(Exception):
    def __reduce__(self):
        raise RuntimeError("not to be pickled")


class OddExit(SystemExit):
    @property
    def code(self):
        raise RuntimeError("no code")


def cyclic():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    first.__context__, second.__context__ = second, first
    return first


def dynamic():
    return type("Dynamic", (ValueError,), {"lock": threading.Lock()})("made just now")


def without_module():
    return type("OddModule", (ValueError,), {"__module__": ["not", "a", "name"]})("made just now")


def nested_group():
    group = getattr(builtins, "ExceptionGroup", ValueError)  # from Python 3.11 on
    return group("outer", [Frozen(1), group("inner", [Frozen(2), BadlyUnprintable()])])


def _named(*makers):
    return {maker.__name__: maker for maker in makers}


KINDS = _named(
    *(Frozen, Unchangeable, FrozenSlots, OwnWithTraceback, Unequal, BadlyUnprintable, OddText),
    *(cyclic, dynamic, without_module, nested_group),
)
"""What makes an error of each kind."""

FATAL_KINDS = _named(
    *(OwnTraceback, RaisingTraceback, RaisingClass, RaisingCause, RaisingAttributes, RaisingGetattr, Untrue),
    RaisingReduce,
)
"""The same of those at which Ray ends the worker whose task raises one."""


def make(name):
    return (KINDS | FATAL_KINDS)[name]()
