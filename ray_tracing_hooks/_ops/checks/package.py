"""Whether every node has the package, in the same version, and what it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_tracing_hooks._ops.facts import HERE, Facts, Place
from ray_tracing_hooks._ops.finding import PROBLEM, WARNING, Finding
from ray_tracing_hooks._version import __version__

OLDEST_RAY = (2, 40)
"""The oldest version of Ray that is tested."""

_LEAST = {"opentelemetry-api": (1, 30), "opentelemetry-sdk": (1, 30), "grpcio": (1, 63, 2)}
"""The least versions of what the package depends on: a job's environment may have replaced them."""

_TOGETHER = ("opentelemetry-api", "opentelemetry-sdk", "opentelemetry-proto")
"""Packages that are released together: different versions of them may not work together."""


def check(facts: Facts) -> Iterator[Finding]:
    """The versions on each node, and whether they are the same."""
    for place in facts.places:
        yield from _of_place(place)
    yield from _differences(facts)


def _of_place(place: Place) -> Iterator[Finding]:
    where = (place.name,)
    if place.package_error:
        is_missing = "No module named 'ray_tracing_hooks'" in place.package_error
        ends = ", so every worker ends when it starts" if place.hook_failed else ""
        yield Finding(
            "package-missing" if is_missing else "package-broken",
            PROBLEM,
            f"ray-tracing-hooks is {'not installed' if is_missing else 'installed, but cannot be imported'}{ends}",
            where,
            f"install it in the environment of the workers, best in their image: pip install ray-tracing-hooks=="
            f"{__version__}",
            (f"{place.executable}: {place.package_error}",),
        )
    if place.ray and number(place.ray) < OLDEST_RAY:
        yield Finding(
            "ray-old",
            PROBLEM,
            f"Ray {place.ray} is older than 2.40, the oldest version that is tested",
            where,
            "use a newer Ray; what this version lacks is reported in the log of the driver, and not traced",
        )
    for name, least in _LEAST.items():
        version = place.distributions.get(name)
        if version is not None and number(version) < least:
            needed = ".".join(map(str, least))
            yield Finding(
                "version-old",
                PROBLEM,
                f"{name} {version} is older than {needed}, which ray-tracing-hooks needs",
                where,
                f"pip install '{name}>={needed}' in the environment of the workers",
            )
    versions = {name: place.distributions[name] for name in _TOGETHER if name in place.distributions}
    if len({number(version)[:2] for version in versions.values()}) > 1:
        found = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield Finding(
            "versions-mixed",
            WARNING,
            f"packages of OpenTelemetry have different versions: {found}",
            where,
            "pip install --upgrade opentelemetry-sdk opentelemetry-exporter-otlp",
        )


def _differences(facts: Facts) -> Iterator[Finding]:
    """Other versions on other nodes."""
    packages = {place.package for place in facts.places if place.package}
    if len(packages) > 1:
        for place in facts.places:
            if place.package and place.package != __version__:
                yield Finding(
                    "package-version",
                    PROBLEM,
                    f"ray-tracing-hooks {place.package} is installed, and {__version__} {HERE}",
                    (place.name,),
                    f"install one version everywhere: pip install ray-tracing-hooks=={__version__}",
                )
    for name in sorted({name for place in facts.answered for name in place.distributions}):
        if name == "ray-tracing-hooks":
            continue
        by_version: dict[str, list[str]] = {}
        for place in facts.answered:
            by_version.setdefault(place.distributions.get(name, "missing"), []).append(place.name)
        if len(by_version) > 1:
            found = ", ".join(
                f"{version} on {', '.join(sorted(names))}" for version, names in sorted(by_version.items())
            )
            yield Finding(
                "versions-differ",
                WARNING,
                f"{name} differs between nodes: {found}",
                advice="use the same image, or the same requirements, on every node",
            )


def number(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version."""
    return tuple(map(int, re.findall(r"\d+", version.partition("+")[0])[:3]))
