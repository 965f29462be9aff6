"""Whether the cluster has a hook, and whether it works in a worker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ray_tracing_hooks._ops.facts import Facts, Place
from ray_tracing_hooks._ops.finding import GOOD, PROBLEM, WARNING, Finding
from ray_tracing_hooks._ops.hooks import BY_SETTINGS, HOOKS, OF_RAY, closest, is_ours

_START = "ray start --head --tracing-startup-hook={hook}"
_RESTART = "start the cluster with a hook, on its head: `{start}`; KubeRay: headGroupSpec.rayStartParams"


def check(facts: Facts) -> Iterator[Finding]:
    """The hook of the cluster, or the one that is to be used."""
    if facts.head is not None:
        yield from _of_cluster(facts)
    failed = [node for node in facts.nodes if node.hook_failed or node.hook_error]
    for node in failed:
        if not node.package_error:
            yield _failed(facts, node)
    if facts.here.hook_error and facts.head is None:
        yield _failed(facts, facts.here)
    for node in facts.answered:
        if node.called and not node.traced and not node.hook_failed:
            yield Finding(
                "hook-without-effect",
                PROBLEM,
                "the hook is called, but does not trace the worker",
                (node.name,),
                "repair what it reports; RAY_TRACING_STRICT=1 makes it raise the error",
                node.reported,
            )
        yield from _reported(node)
    works = [node for node in facts.answered if node.traced and not node.hook_failed]
    if works and len(works) == len(facts.nodes):
        many = f"workers of {'all nodes' if len(works) > 1 else 'the node'}"
        yield Finding("hook", GOOD, f"{facts.hook} traces {many}")
    elif facts.head is None and facts.hook and not facts.here.hook_error and not facts.here.package_error:
        yield Finding("hook", GOOD, f"{facts.hook} can be imported here")


def _of_cluster(facts: Facts) -> Iterator[Finding]:
    assert facts.head is not None
    hook = facts.head.hook
    if hook is None:
        yield Finding(
            "hook-missing",
            PROBLEM,
            "the cluster was started without a tracing hook, so nothing is traced",
            advice=_RESTART.format(start=_START.format(hook=BY_SETTINGS))
            + ". A hook that a driver names in ray.init() has no effect on a running cluster",
        )
    elif hook == OF_RAY:
        yield Finding(
            "hook-of-ray",
            PROBLEM,
            f"the hook of the cluster is Ray's own ({hook}), which does not use this package",
            advice=_RESTART.format(start=_START.format(hook="ray_tracing_hooks.local:setup")),
        )
    elif not is_ours(hook) and facts.answered and not any(node.called or node.hook_failed for node in facts.answered):
        yield Finding(
            "hook-of-others",
            PROBLEM,
            f"the hook of the cluster, {hook}, does not call a hook of this package",
            advice="call `ray_tracing_hooks.setup()` in it, or "
            + _RESTART.format(start=_START.format(hook=BY_SETTINGS)),
        )
    if facts.head.is_hook_late:
        yield Finding(
            "hook-late",
            WARNING,
            "the hook was set while the cluster was running: workers that had started before are not traced",
            advice="restart the cluster with the hook, or wait until these workers have ended",
        )


def _reported(node: Place) -> Iterator[Finding]:
    """What the hook has reported in the worker, if it is not about settings, which are checked in any case."""
    known = {text.rstrip(".") for _, text in (node.examined.problems if node.examined is not None else ())}
    for text in node.reported if node.traced else ():
        if text.rstrip(".") not in known and not re.search(r"\bis ignored\b|^unknown ", text):
            yield Finding(
                "worker-reports",
                PROBLEM,
                f"tracing reports in a worker: {text}",
                (node.name,),
                "fix the reported problem; other findings may say more about the cause",
            )


def _failed(facts: Facts, place: Place) -> Finding:
    """Why the workers of a node end when they start, or why the hook cannot be imported here."""
    hook, error = str(facts.hook), place.hook_error
    ends = "every worker ends when it starts, and no task runs"
    if not error:
        return Finding(
            "worker-ends",
            PROBLEM,
            ends,
            (place.name,),
            "correct what is reported, and restart Ray on the node; worker-*.err in the folder logs of its session has "
            "the error",
            place.reported,
        )
    if is_ours(hook) and hook not in HOOKS:
        advice = f"did you mean {closest(hook)}? Restart the head: `{_START.format(hook=closest(hook))}`"
    elif "ModuleNotFoundError" in error or "ImportError" in error:
        advice = "install the module where workers run: the folder of the driver's script is not on their path"
    else:
        advice = "a hook must not raise: repair it, or restart the head with another one"
    then = f", so {ends}" if facts.head is not None else ""
    return Finding("hook-fails", PROBLEM, f"the hook {hook} does not work{then}", (place.name,), advice, (error,))
