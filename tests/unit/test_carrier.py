"""The context of a call: what goes in comes out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks._record import carrier

headers = st.dictionaries(
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1),
    st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
)


@given(
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=8, max_size=8),
    st.integers(0, 255),
    st.integers(0, (1 << 64) - 1),
    st.one_of(st.just(b""), st.binary(min_size=24, max_size=24)),
    headers,
    st.booleans(),
    st.booleans(),
    st.one_of(st.none(), st.tuples(st.text(st.characters(blacklist_categories=["Cs"])), st.binary())),
    st.one_of(st.none(), st.just(b""), st.binary(min_size=8, max_size=8)),
)
def test_a_context_survives_the_journey(
    trace_id: bytes,
    span_id: bytes,
    flags: int,
    time: int,
    task: bytes,
    carried: dict[str, str],
    creation: bool,
    without_span: bool,
    runs: tuple[str, bytes] | None,
    parent_id: bytes | None,
) -> None:
    argument = carrier.encode(
        *(trace_id, span_id, flags, time, task, carried),
        creation=creation,
        without_span=without_span,
        runs=runs,
        parent_id=parent_id,
    )
    back = carrier.decode(argument)
    assert (back.trace_id, back.span_id, back.flags, back.submit_time_ns) == (trace_id, span_id, flags, time)
    assert back.without_span == without_span
    assert back.parent_task_id == (b"" if task == bytes(24) else task)
    assert back.headers == carried
    assert (back.runs, back.attributes) == (runs or ("", b""))
    assert back.parent_id == (b"" if parent_id == bytes(8) else parent_id)
    assert bool(argument[0] & 1) == creation


@pytest.mark.parametrize("missing", [1, 4, 6, 8])
def test_what_a_call_runs_is_refused_if_it_is_cut_off(missing: int) -> None:
    argument = carrier.encode(bytes(16), bytes(8), 0, 0, b"", None, runs=("Read", b"..."))
    with pytest.raises(ValueError, match=r"buffer|cut off"):
        carrier.decode(argument[:-missing])


def test_an_empty_argument_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer"):
        carrier.decode(b"")
