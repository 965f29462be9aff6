"""Patterns of settings for the names of functions and methods."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(pattern: str, function: str, plain: str = "") -> bool:
    """Whether a pattern matches a function by its name, or by the ``plain`` form of it."""
    return fnmatchcase(function, pattern) or (plain not in {"", function} and fnmatchcase(plain, pattern))


def plain_name(class_name: str, method: str) -> str:
    """A method as in the span of its execution; where it is submitted, Ray's name of a class says where it is defined.

    Empty for a function.
    """
    return f"{class_name.rpartition('.')[2]}.{method}" if class_name else ""
