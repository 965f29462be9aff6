"""A finding of the analysis, and from which cost on something is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ray_tracing_hooks._insight.analysis.analysis import Analysis
from ray_tracing_hooks._insight.analysis.wording import duration, percent, plain, shortened

MOST_ROWS = 20
_LITTLE = 0.01
"""The share of a run that says less than the share of the time of requests, as where most clients are outside."""


@dataclass
class Finding:
    """Something worth a look, with the spans that show it.

    The texts quote names from spans, so escape them where they are shown.
    """

    kind: str
    """Its kind, for programs; stable across releases, such as ``get-in-loop``."""
    text: str
    """The evidence: one sentence with figures, in lower case and without a full stop: ``48 calls of work took 3.2 ms
    each; ...``."""
    advice: str
    """What can be done about it; empty if that depends on the program."""
    share: float
    """The most that the run could save, as a share of the wall time from 0 to 1. What is saved is time on the critical
    path, never a sum over workers. Findings are ordered by this."""
    rows: Sequence[int]
    """The rows of spans that show it, the most telling first. Only the first :data:`MOST_ROWS` are kept."""
    about: dict[str, str] = field(default_factory=dict)
    """The names of what it is about, by ``function``, ``actor``, ``deployment`` and so on. They have a name at the
    beginning of the text."""
    is_assumed: bool = False
    """Whether it assumes something that was not recorded, such as waiting without ``ray.get`` spans."""
    is_failure: bool = False
    """Whether something failed or hangs. Such findings come first, and the page shows them as errors."""
    quotes: dict[str, str] = field(default_factory=dict)
    """Parts of the text that are attribute values, by key. Where an attribute is redacted, its part is redacted too.
    Types and messages of exceptions are under ``error.type``."""
    title: str = field(kw_only=True)
    """The cause in a few words, without a full stop: ``Actor Store#93fc54dc is a bottleneck``. It quotes names of
    functions, actors and runs, and no attribute that may be redacted."""
    requests_share: float = 0.0
    """Of what makes requests to Ray Serve slow: its share of their time. It is the cost where none of the run is known,
    as in one whose clients are outside."""

    def cost(self, wall: int) -> str:
        """The share of a run of ``wall`` nanoseconds as text for people; empty if no cost is known."""
        if self.requests_share and self.share < _LITTLE:
            return f"{percent(self.requests_share)} of the time of requests"
        if not self.share:
            return ""
        share = percent(self.share)
        if share.startswith("<"):
            return "less than 1 % of the run"
        of_run = "nearly all" if share.startswith(">") else share
        return f"at most {duration(round(self.share * wall))}, {of_run} of the run"

    @property
    def headline(self) -> str:
        """The title, marked if the finding is an assumption."""
        return f"{self.title}, it seems" if self.is_assumed else self.title

    def __post_init__(self) -> None:
        self.rows, self.share = list(self.rows)[:MOST_ROWS], min(1.0, self.share)


def is_costly(analysis: Analysis, cost: float, share: float = 0.1, seconds: float = 0) -> bool:
    """Whether a cost in nanoseconds is worth a finding: at least this share of the run, and so many seconds."""
    wall = analysis.path.wall
    return wall > 0 and cost >= max(share * wall, seconds * 1e9)


def seems(text: str, *, is_assumed: bool) -> str:
    """The text of a finding, as an assumption if it is one."""
    return f"it seems that {text}" if is_assumed else text


def quoted(name: str) -> str:
    """A name for a sentence: without the module ``__main__``, and shortened if it is long."""
    return shortened(plain(name))
