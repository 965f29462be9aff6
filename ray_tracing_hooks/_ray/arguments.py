"""Context propagation with calls: in the flat argument list, where an untraced process does not see it.

Ray flattens the arguments of every Python call into pairs of name and value (``_common/signature.py``,
``flatten_args``), serializes each element, and rebuilds the arguments in the worker (``recover_args``). User
signatures, keyword arguments and pickles are not changed. What a call carries depends on its arguments:

- With positional arguments: the first element is the name that Ray gives to all of them. The context goes into the
  metadata of this serialized element, after ``RAW``, where Ray does not read any further
  (``_private/serialization.py``, ``_deserialize_object``).
- With keywords only, or no arguments: the context is one more element at the end. An unwrapped ``recover_args`` fails
  on the odd number, so this is for clusters in which every worker has run the hook
  (:mod:`ray_tracing_hooks._ray.cluster`).
- With keywords only, in another cluster: the first pair comes twice, once with the context and then with the value,
  which wins. A call without arguments carries no context there.

All these functions are called through their module or class, so they can be wrapped (Ray 2.60: ``remote_function.py``,
``actor.py``, ``_raylet.pyx``).

:class:`RecordedArguments` has the attributes for arguments and results, where they are recorded.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ray_tracing_hooks import names
from ray_tracing_hooks._formats.encoded_span import encode
from ray_tracing_hooks._ray import process
from ray_tracing_hooks._ray.cluster import Cluster
from ray_tracing_hooks._record.span import RecordedSpan
from ray_tracing_hooks._safety.exceptions import hide_frame
from ray_tracing_hooks._safety.guard import failed
from ray_tracing_hooks._safety.patching import Patches, original_of

if TYPE_CHECKING:
    from ray_tracing_hooks._record.argument_text import Redactor

KEY = "__ray_tracing_hooks_context__"
"""The keyword that passes a context from ``recover_args`` to the executor, which removes it again. A thread-local
would not do, since the methods of async actors run in another thread.
"""

_LABEL = b"RAW,ray_tracing_hooks="
"""The prefix of the metadata of an element that carries a context; Ray's own metadata is ``RAW``."""

_LABEL_LENGTH = len(_LABEL)


class _Outgoing(threading.local):
    carried: bytes | None = None


outgoing = _Outgoing()
"""The context of the call that this thread is submitting."""


class _NoArguments(tuple[()]):
    """Empty, but true: Ray skips ``flatten_args`` for a call without arguments and parameters."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return True


class _FirstName(bytes):
    """The name of a call's first positional argument if the call carries a context."""

    __slots__ = ()


_NO_ARGUMENTS = _NoArguments()
_SEQUENCES = frozenset({tuple, list})
_lasting = Patches()


def place_in(cluster: Cluster) -> Callable[[Any], Any]:
    """A function that converts a call's arguments so that they have a place for the carried context in this cluster.

    ``_remote(args=...)`` takes any sequence, and one that is false need not be empty, such as an array of one zero.
    """

    def with_place(args: Any) -> Any:
        is_empty = args is None or (args.__class__ in _SEQUENCES and not args)
        return _NO_ARGUMENTS if is_empty and cluster.all_traced else args

    return with_place


class ContextExtractor:
    """Passes the contexts that arrive with calls to the executors.

    Attributes:
        deliver: Takes the context of a call and its keyword arguments. It drops the context until executors are wrapped
            (:meth:`open`), which remove it from the arguments again.
    """

    __slots__ = ("_creation", "_has_executors", "deliver")

    def __init__(self) -> None:
        self._creation: bytes | None = None
        self._has_executors = True
        self.deliver: Callable[[bytes, dict[str, Any]], None] = _drop

    def open(self) -> None:
        """Deliver contexts to executors from now on."""
        self.deliver = self._deliver

    def close(self) -> None:
        """Drop contexts from now on."""
        self.deliver = _drop

    def leave_out_executors(self) -> None:
        """Deliver only the contexts of creations from now on: the methods of this process's actor have no executors of
        ours, and would get an unexpected argument.
        """
        self._has_executors = False

    def take_creation(self) -> bytes | None:
        """The context of the actor creation that this process is executing; a process has at most one."""
        carried, self._creation = self._creation, None
        return carried

    def _deliver(self, carried: bytes, kwargs: dict[str, Any]) -> None:
        if carried[0] & 1:
            # Not in the keyword arguments, since Ray writes those of a creation into the actor's title.
            self._creation = carried
        elif self._has_executors:
            kwargs[KEY] = carried


def _drop(carried: bytes, kwargs: dict[str, Any]) -> None:
    """Drop the context, in a process without executors of ours."""


arrivals = ContextExtractor()
"""One per process. It outlives connections, since callers send contexts whether or not this process is traced."""


def patch(patches: Patches, cluster: Cluster) -> bool:
    """Wrap both ends; False if this Ray lacks one of them.

    When its patches are undone, a worker still takes contexts out of calls, since callers still send them.
    """
    try:
        # This module is imported only in Ray processes.
        signature = signature_module()
        from ray._private.serialization import SerializationContext  # noqa: PLC0415
        from ray._raylet import (  # type: ignore[attr-defined]  # noqa: PLC0415  not in its stub
            RawSerializedObject,
            SerializedObject,
        )
    except ImportError:
        return False
    name = getattr(signature, "DUMMY_TYPE", None)
    if not isinstance(name, bytes) or not callable(getattr(signature, "flatten_args", None)):
        return False
    first_name = _FirstName(name)

    def serialize(original: Callable[..., Any]) -> Callable[..., Any]:
        def serialize(self: Any, value: Any) -> Any:
            if value is not first_name:
                try:
                    return original(self, value)
                except BaseException as error:
                    hide_frame(error)
                    raise
            serialized = RawSerializedObject(value)
            carried = outgoing.carried
            if carried is not None:
                SerializedObject.__init__(serialized, _LABEL + carried)
            return serialized

        return serialize

    def flatten_args(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def flatten_args(signature_parameters: Any, args: Any, kwargs: Any) -> list[Any]:
            try:
                flat = original(signature_parameters, args, kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            carried = outgoing.carried
            if carried is not None:
                if flat and flat[0].__class__ is bytes:
                    flat[0] = first_name
                elif cluster.all_traced:
                    flat.append(carried)
                elif flat:
                    flat[0:0] = flat[0], carried
            return flat

        return flatten_args

    patches.on_undo(partial(_give_back, signature))  # called last
    receiving = _lasting if process.mode() == process.WORKER else patches
    return (
        receiving.wrap(signature, "recover_args", _recover_args)
        and patches.wrap(SerializationContext, "deserialize_objects", _deserialize_objects)
        and patches.wrap(SerializationContext, "serialize", serialize)
        and patches.wrap(signature, "flatten_args", flatten_args)
    )


def _give_back(signature: Any) -> None:
    """Give the originals, which are in place again, to the module of Serve that may have imported replacements of them.

    A function with ``@serve.batch`` is pickled by value and refers to these by name, so both have to be the same.
    """
    batching = sys.modules.get("ray.serve.batching")
    for name in ("flatten_args", "recover_args"):
        original = vars(signature).get(name)
        if original is not None and original_of(getattr(batching, name, None)) is original:
            setattr(batching, name, original)


def signature_module() -> Any:
    """The module of Ray that flattens and recovers arguments."""
    try:
        from ray._common import signature  # noqa: PLC0415
    except ImportError:
        from ray._private import signature  # noqa: PLC0415  before Ray 2.48
    return signature


def _deserialize_objects(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    def deserialize_objects(self: Any, serialized: Any, *rest: Any) -> list[Any]:
        try:
            objects = original(self, serialized, *rest)
        except BaseException as error:
            hide_frame(error)
            raise
        if serialized:
            metadata = serialized[0][1]
            if metadata and len(metadata) > _LABEL_LENGTH and metadata.startswith(_LABEL):
                objects.append(metadata[_LABEL_LENGTH:])
        return objects

    return deserialize_objects


def _recover_args(original: Callable[..., Any]) -> Callable[..., Any]:
    def recover_args(flattened_args: list[Any]) -> Any:
        count = len(flattened_args)
        if count & 1:
            carried = flattened_args.pop()
        elif count > 2 and flattened_args[0].__class__ is str and flattened_args[0] == flattened_args[2]:
            carried = flattened_args[1]
            del flattened_args[:2]
        else:
            return original(flattened_args)
        args, kwargs = original(flattened_args)
        arrivals.deliver(carried, kwargs)
        return args, kwargs

    return recover_args


_MOST_DECORATORS = 100
"""Bounds the chain of decorators, since a function may claim to wrap itself."""


class RecordedArguments:
    """Renders the arguments and the result of one function or method. A method's first argument is its actor."""

    def __init__(self, redactor: Redactor, function: Any, name: str, *, is_method: bool) -> None:
        self._redactor = redactor
        self._name = name
        self._names = _parameters(function)
        self._is_method = is_method
        self._drops_first: bool | None = None if is_method else False

    def of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], bytes]:
        """A function that returns the encoded attribute of these arguments."""

        def encoded() -> bytes:
            try:
                if self._drops_first is None:
                    static = inspect.getattr_static(type(args[0]), self._name, None)
                    self._drops_first = not isinstance(static, staticmethod)
                text = self._redactor.arguments(self._names[self._drops_first :], args[self._is_method :], kwargs)
                return encode.attribute(names.RAY_ARGUMENTS, text) if text else b""
            except Exception as error:  # noqa: BLE001  the user's code must run whatever fails here
                failed("recording the arguments of a task", error)
                return b""

        return encoded

    def result(self, span: RecordedSpan, result: Any) -> None:
        """Record the result."""
        try:
            span.set_attribute(names.RAY_RESULT, self._redactor.result(self._name, result))
        except Exception as error:  # noqa: BLE001  as above
            failed("recording the result of a task", error)


def _parameters(function: Any) -> tuple[str, ...]:
    """The names of the positional parameters, the last one with a ``*`` if it takes further arguments.

    A decorator with ``__wrapped__`` is followed if it takes further arguments, since its own parameters have no names
    that indicate secrets.
    """
    found: tuple[str, ...] = ()
    rest = ""
    for _ in range(_MOST_DECORATORS):
        code = getattr(function, "__code__", None)
        if code is None:
            break
        count = code.co_argcount
        found += code.co_varnames[len(found) : count]
        if not code.co_flags & inspect.CO_VARARGS:
            return found
        rest = f"*{code.co_varnames[count + code.co_kwonlyargcount]}"
        function = getattr(function, "__wrapped__", None)
    return (*found, rest) if rest else found
