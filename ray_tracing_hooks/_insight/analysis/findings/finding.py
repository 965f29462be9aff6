"""What a finding is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.wording import percent, plain, shortened

MOST_ROWS = 20


@dataclass
class Finding:
    """Something that is worth a look, with what shows it.

    Texts quote names out of spans: they are to be escaped where they are shown.
    """

    kind: str
    """What it is, for programs: the same in every release, as ``get-in-loop``."""
    text: str
    """One sentence with figures."""
    advice: str
    """What may be done; empty where that is for the reader to say."""
    share: float
    """What it costs at most, as a share of the wall time from 0 to 1: by this, findings are ordered."""
    rows: Sequence[int]
    """Spans that show it, at most :data:`MOST_ROWS`."""
    figures: dict[str, float | int | str] = field(default_factory=dict)
    """The same figures for programs. Names say units: ``_ns``, ``_share``; else they are counts."""
    is_assumed: bool = False
    """Whether it rests on what was not recorded, as waiting without spans ``ray.get``."""
    quotes: dict[str, str] = field(default_factory=dict)
    """What of the text is the value of an attribute, by its key: where that is hidden, this has to be."""

    @property
    def cost(self) -> str:
        """The share as it is said to people; empty where there is none."""
        return f"at most {percent(self.share)} of the run" if self.share else ""

    def __post_init__(self) -> None:
        self.rows = list(self.rows)[:MOST_ROWS]


def quoted(name: str) -> str:
    """A name in a sentence: without the module that scripts have, and not endless."""
    return shortened(plain(name))
