"""Formats figures and names for sentences."""

from __future__ import annotations

from collections.abc import Sequence

_LONGEST = 80


def duration(nanoseconds: float) -> str:
    """A duration to three digits: ``812 us``, ``1.23 ms``, ``45.6 s``, ``2m 05s``, ``1h 02m``."""
    if nanoseconds < 999.5e3:
        return f"{_three_digits(nanoseconds / 1e3)} us"
    if nanoseconds < 999.5e6:
        return f"{_three_digits(nanoseconds / 1e6)} ms"
    if nanoseconds < 59.95e9:
        return f"{_three_digits(nanoseconds / 1e9)} s"
    seconds = round(nanoseconds / 1e9)
    if seconds < 3600:
        return f"{seconds // 60}m {seconds % 60:02}s"
    return f"{seconds // 3600}h {seconds // 60 % 60:02}m"


def size(number: float) -> str:
    """A number of bytes to three digits: ``512 B``, ``1.50 KiB``, ``24.0 MiB``, ``3.10 GiB``."""
    if number < 1024:
        return f"{number:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        number /= 1024
        if number < 999.5:
            return f"{_three_digits(number)} {unit}"
    return f"{_three_digits(number / 1024)} TiB"


def rate(per_second: float) -> str:
    """A number per second to three digits: ``0.12``, ``48.3``, ``1,204``."""
    return f"{per_second:,.0f}" if per_second >= 99.95 else _three_digits(per_second)


def _three_digits(number: float) -> str:
    return f"{number:.2f}" if number < 9.995 else f"{number:.1f}" if number < 99.95 else f"{number:.0f}"


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 error``, ``1,204 spans``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(share: float) -> str:
    """``34 %``; ``< 1 %`` for a small share that is not zero, ``> 99 %`` for a large one that is not all."""
    if 0 < share < 0.005:
        return "< 1 %"
    return "> 99 %" if 0.995 <= share < 1 else f"{share * 100:.0f} %"


def listed(parts: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def shortened(text: str, longest: int = _LONGEST) -> str:
    """The text, without its middle if it is too long: the ends of a name say most."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return text[: longest - 1 - tail] + "…" + text[-tail:]


def plain(name: str) -> str:
    """A function's name without the module ``__main__``; the driver name ``__main__.py`` (``python -m``) is kept."""
    return name if name == "__main__.py" else name.removeprefix("__main__.")
