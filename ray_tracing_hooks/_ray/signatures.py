"""A faster check of a call's arguments, which avoids building an ``inspect.Signature`` in most cases.

Wraps ``validate_args`` (Ray 2.60 ``_common/signature.py``), which ``flatten_args`` calls with each call's arguments. It
compensates for some of the cost of tracing. Arguments that do not fit, or may not fit, are left to Ray, and so are the
errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

from ray_tracing_hooks._exceptions import hide_frame
from ray_tracing_hooks._guard import failed
from ray_tracing_hooks._patching import Patches
from ray_tracing_hooks._ray.arguments import signature_module

_MOST_SHAPES = 10_000
"""Bounds the cache, since programs may create functions without limit."""


def patch(patches: Patches) -> bool:
    """Wrap the check of arguments; False if this Ray lacks the wrapped function."""
    try:
        signature = signature_module()
    except ImportError:
        return False
    return patches.wrap(signature, "validate_args", _validate_args)


class Shape:
    """The arguments that fit the parameters of a function, by names and numbers."""

    __slots__ = ("_any_name", "_by_name", "_most", "_names", "_required", "parameters")

    def __init__(self, parameters: Sequence[Parameter]) -> None:
        self.parameters = parameters
        positional = [each for each in parameters if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}]
        self._names = [each.name for each in positional]
        kinds = {each.kind for each in parameters}
        self._most = sys.maxsize if Parameter.VAR_POSITIONAL in kinds else len(positional)
        self._any_name = Parameter.VAR_KEYWORD in kinds
        # Parameters without default, by position. Functions with required keyword-only ones are left to Ray.
        self._required = [number for number, each in enumerate(positional) if each.default is each.empty]
        if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
            self._most = -1
        self._by_name = frozenset(
            each.name for each in parameters if each.kind in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}
        )

    def fits(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether these arguments certainly fit."""
        given = len(args)
        if given > self._most:
            return False
        if not kwargs:
            return not self._required or self._required[-1] < given
        names = self._names
        for name in kwargs:
            if name in names[:given]:
                return False
            # A keyword with the name of a positional-only parameter goes to **kwargs: leave it to Ray.
            if name not in self._by_name and (not self._any_name or name in names):
                return False
        return all(number < given or names[number] in kwargs for number in self._required)


def _validate_args(original: Callable[..., None]) -> Callable[..., None]:
    shapes: dict[int, Shape] = {}

    def fits(parameters: Any, args: Any, kwargs: Any) -> bool:
        # Ray keeps one list per function.
        shape = shapes.get(id(parameters))
        if shape is None or shape.parameters is not parameters:
            if len(shapes) >= _MOST_SHAPES:
                shapes.clear()
            shape = shapes[id(parameters)] = Shape(parameters)
        return shape.fits(args, kwargs)

    def validate_args(signature_parameters: Any, args: Any, kwargs: Any) -> None:
        try:
            if fits(signature_parameters, args, kwargs):
                return
        except Exception as error:  # noqa: BLE001  the user's call must be made whatever fails here
            failed("checking the arguments of a call", error)
        try:
            original(signature_parameters, args, kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    return validate_args
