"""What the analysis does not do yet: a gap that is closed makes the test fail, so that it is taken out here."""

from __future__ import annotations

NOT_RECORDED = frozenset(
    {
        "balanced_application",
        "balanced_pipeline",
        "cold_replica",
        "computing_replica",
        "dataset_in_the_background",
        "equal_ranks",
        "equal_trials",
        "failed_trials",
        "failing_requests",
        "held_and_straggler",
        "late_first_step",
        "late_rank",
        "late_rank_and_restart",
        "memory_holds_back",
        "one_slow_actor",
        "one_trial_at_a_time",
        "overlapped_consumer",
        "rank_becomes_late",
        "rank_fails",
        "requests_time_out",
        "skewed_keys",
        "slow_caller",
        "slow_checkpoints",
        "slow_consumer",
        "slow_dependency",
        "slow_node",
        "slow_node_of_actors",
        "slow_operator",
        "slow_operator_then_consumer",
        "slow_start",
        "slow_trial",
        "small_batches",
        "streamed_items",
        "time_budget",
        "tiny_blocks",
    }
)
"""Programs that wait for an idle machine: ``python -m corpus record --missing``."""

_REASONS: dict[str, tuple[str, ...]] = {
    "A result that the driver has waited for in vain is not named": ("gets_with_timeouts planted first",),
    "Workers that start once idle actors have ended are not part of the cost of these": (
        "idle_actors_hold_all planted bound",
    ),
    "Waits for a resource that other calls of the same function hold are not named": (
        "one_license planted first",
        "large_request planted first",
    ),
    "The cost of starting workers ends when they are ready, before they have the code of their first call": (
        "process_for_each planted bound",
    ),
    "Results that take long to unpickle are not named": ("slow_fetch planted first",),
    "Spilling is known of datasets only, so calls that wait for room in the object store seem to wait for resources": (
        "spilled_objects planted first",
        "spilled_objects planted false",
        "spilled_objects assumed false",
    ),
    "A new async actor that takes its first calls slowly looks like one whose event loop is blocked": (
        "concurrent_coroutines planted false",
        "concurrent_coroutines assumed false",
    ),
    "The driver's own code after its last result is not counted, since an idle notebook looks the same": (
        "background_wait planted cost",
        "background_wait planted bound",
    ),
    "A replica whose event loop is blocked is not named": ("blocking_replica planted first",),
    "The path of a driver does not enter the requests that it makes by handles": ("calls_by_handle planted first",),
}

GAPS = {gap: reason for reason, gaps in _REASONS.items() for gap in gaps}
"""The reason by ``PROGRAM FORM CHECK``: see :meth:`corpus.judging.Judged.complaints` for the checks."""
