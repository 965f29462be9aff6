"""Computations on whole columns give what a loop over their rows gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks._insight.model.grouped import (
    distinct,
    greatest_before,
    levels,
    most_at_once,
    sums,
    tops,
    uncovered,
)
from ray_tracing_hooks._insight.model.id_lists import Strings

TIMES = st.integers(0, 30)
INTERVALS = st.lists(st.tuples(st.integers(0, 3), TIMES, TIMES).map(lambda each: (each[0], *sorted(each[1:]))))


@given(st.lists(st.tuples(st.integers(0, 3), TIMES, TIMES)))
def test_uncovered_parts_are_those_in_no_interval(intervals: list[tuple[int, int, int]]) -> None:
    """For four time ranges, with intervals inside them, across their ends, outside them, and that end too early."""
    first, last = np.array([0, 5, 10, 20]), np.array([30, 25, 10, 28])
    columns = np.array(intervals, np.int64).reshape(-1, 3).T
    found = []
    for place, begin, end in zip(*uncovered(first, last, *columns), strict=True):
        found += [(place, moment) for moment in range(begin, end)]
    assert found == [
        (place, moment)
        for place in range(4)
        for moment in range(first[place], last[place])
        if not any(of == place and begin <= moment < end for of, begin, end in intervals)
    ]


@given(INTERVALS)
def test_most_at_once_is_the_maximum_over_all_moments(intervals: list[tuple[int, int, int]]) -> None:
    """For intervals that are not empty."""
    there = [(begin, end) for _, begin, end in intervals if end > begin]
    begins, ends = np.array(there, np.int64).reshape(-1, 2).T
    most = max((sum(begin <= moment < end for begin, end in there) for moment in range(30)), default=0)
    assert most_at_once(begins, ends) == most


@given(st.lists(st.integers(-1, 40), max_size=41))
def test_roots_and_depths_are_those_of_walking_up(above: list[int]) -> None:
    """For a forest in which the parent of each row is an earlier row."""
    above = [min(each, row - 1) for row, each in enumerate(above)]

    def way(row: int) -> list[int]:
        return [row, *(way(above[row]) if above[row] >= 0 else [])]

    ways = [way(row) for row in range(len(above))]
    column = np.array(above, np.int64)
    assert tops(column).tolist() == [each[-1] for each in ways]
    assert levels(column).tolist() == [len(each) - 1 for each in ways]


@given(st.lists(st.tuples(st.integers(0, 3), TIMES)), st.sampled_from([0, 1, 1 << 57]), st.integers(-5, 5))
def test_greatest_before_is_that_of_the_same_group(values: list[tuple[int, int]], factor: int, added: int) -> None:
    """Also for times that do not fit into 64 bits with an offset for each group."""
    values = sorted(((group, value * factor + added) for group, value in values), key=lambda each: each[0])
    least = [3, 0, 20, 1 << 60]
    groups, column = (
        np.array([group for group, _ in values], np.int32),
        np.array([each for _, each in values], np.int64),
    )
    assert greatest_before(groups, column, np.array(least)).tolist() == [
        max([least[group], *(value for of, value in values[:place] if of == group)])
        for place, (group, _) in enumerate(values)
    ]


@given(st.lists(st.integers(0, 5)))
def test_distinct_numbers_are_ascending(numbers: list[int]) -> None:
    assert distinct(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))


def test_sums_may_exceed_64_bits() -> None:
    """As those of spans with damaged times do."""
    most = (1 << 63) - 1
    assert sums(np.array([0, 1, 0]), np.array([most, 5, most]), 3) == [2 * most, 5, 0]


@given(st.lists(st.text(max_size=20)))
def test_equal_texts_have_equal_numbers(texts: list[str]) -> None:
    """The number of a text is the index of the first text equal to it, whatever its length."""
    assert Strings(texts).numbers().tolist() == list(map(texts.index, texts))


@given(st.lists(st.text(max_size=5)), st.integers(0, 30))
def test_matrix_has_the_texts_of_one_length(texts: list[str], length: int) -> None:
    """Also for a length that no text has, and that exceeds the length of all texts together."""
    which, rows = Strings(texts).matrix(length)
    encoded = [text.encode() for text in texts]
    assert which.tolist() == [place for place, each in enumerate(encoded) if len(each) == length]
    assert [row.tobytes() for row in rows] == [each for each in encoded if len(each) == length]


def test_texts_with_equal_hashes_have_different_numbers() -> None:
    """Ids can be chosen so that their hashes are equal."""
    mask, factor = (1 << 64) - 1, 0x9E3779B97F4A7C15

    def mixed(word: int) -> int:
        product = word * factor & mask
        return product ^ product >> 29

    one, other = b"AAAAAAAA", b"BBBBBBBB"
    end = b"CCCCCCCC"
    words = [int.from_bytes(text, "little") for text in (one, other, end)]
    same = (mixed(words[0]) ^ words[2] ^ mixed(words[1])).to_bytes(8, "little")
    rows = np.frombuffer(one + end + other + same, np.uint8).reshape(2, 16)
    texts = Strings()
    texts.add_rows(rows)
    texts.add_rows(rows)
    assert texts.numbers().tolist() == [0, 1, 0, 1]


@given(st.lists(st.text("ab", max_size=3), unique=True), st.lists(st.text("ab", min_size=2, max_size=2)))
def test_texts_are_found(texts: list[str], wanted: list[str]) -> None:
    rows = np.frombuffer("".join(wanted).encode(), np.uint8).reshape(len(wanted), 2)
    assert Strings(texts).find(rows).tolist() == [texts.index(each) if each in texts else -1 for each in wanted]


@given(st.lists(st.text("ab", max_size=2)), st.lists(st.integers(0, 9)))
def test_texts_are_taken_by_their_indexes(texts: list[str], indexes: list[int]) -> None:
    wanted = [each for each in indexes if each < len(texts)]
    assert list(Strings(texts).taken(np.array(wanted, np.int64))) == [texts[each] for each in wanted]
