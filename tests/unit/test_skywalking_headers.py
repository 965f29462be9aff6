"""SkyWalking's ids and headers, against what its own agents write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_tracing_hooks._formats.skywalking import headers, ids
from ray_tracing_hooks._formats.skywalking.headers import Reference

TRACE = "0af7651916cd43dd8448eb211c80319c"

SW8 = {
    "1-MGFmNzY1MTkxNmNkNDNkZDg0NDhlYjIxMWM4MDMxOWM=-NGYyZjI3NzQ4YjhlNDRlY2FmMThmZTAzNDcxOTRlODY=-3-572R5YWz-aW5zdC0x"
    "-L2FwaS/orqLljZU=-MTAuMC4wLjU6ODAwMA==": Reference(
        TRACE, "4f2f27748b8e44ecaf18fe0347194e86", 3, True, "网关", "inst-1", "/api/订单", "10.0.0.5:8000"
    ),
    "1-NTZhNWUxYzUxOWFlNGM3NmEyYjhiMTFkOTJjZWFkN2YuMTIuMTY1NjM0NzQyOTY0MzAwMDE="
    "-NTZhNWUxYzUxOWFlNGM3NmEyYjhiMTFkOTJjZWFkN2YuMTIuMTY1NjM0NzQyOTY0MzAwMDA=-3-Z2F0ZXdheQ==-Z3ctMQ==-L2FwaQ=="
    "-MTAuMC4wLjU6ODAwMA==": Reference(
        "56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430001",
        "56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430000",
        3,
        True,
        "gateway",
        "gw-1",
        "/api",
        "10.0.0.5:8000",
    ),
    "1-Yzk4OTAwMThlNTUyMTFmMTk4ZGYwMmZjMDAwMDAwMDE=-Yzk4OGZlMjRlNTUyMTFmMTk4ZGYwMmZjMDAwMDAwMDE=-1-c3ctQQ==-aW5zdC1B"
    "-L2hlbGxvLXJheS91cHN0cmVhbQ==-MTI3LjAuMC4xOjIxMDgx": Reference(
        "c9890018e55211f198df02fc00000001",
        "c988fe24e55211f198df02fc00000001",
        1,
        True,
        "sw-A",
        "inst-A",
        "/hello-ray/upstream",
        "127.0.0.1:21081",
    ),
}
"""The second is of the Java agent, the third was captured from the Python agent."""

SW6 = {
    "1-NC4xNzk1MjI4MDAyMjI2LjE3OTUyMjgwMDIyMzQ5MzYy-NC4xNzk1MjI4MDAyMjI1LjE3OTUyMjgwMDIyMzQ5Nzcy-1-4-4"
    "-IzEyNy4wLjAuMToyMTA4Mw==-Iy9jaGVja291dA==-Iy9jaGVja291dA==": Reference(
        "4.1795228002226.17952280022349362",
        "4.1795228002225.17952280022349772",
        1,
        True,
        "",
        "",
        "",
        "#127.0.0.1:21083",
        4,
        4,
        "#/checkout",
        "#/checkout",
    ),
    "1-NDUwNDM1MzIzMTcwNDQyOC4zNjQ2MjgyNjAxMDE4LjM0NDA3NDY5Njc0NTI=-MS4xMjM0NTY3ODkwMS4xNzk1MjI4MDAyMjM0MDAwMQ==-0-1-1"
    "-I3JheTpsbG0vRW1iZWRkZXI=-LTE=-LTE=": Reference(
        "4504353231704428.3646282601018.3440746967452",
        "1.12345678901.17952280022340001",
        0,
        True,
        "",
        "",
        "",
        "#ray:llm/Embedder",
        1,
        1,
        "-1",
        "-1",
    ),
}

GOOD = "1-dA==-cw==-3-c3Zj-aQ==-ZQ==-YQ=="


def changed(part: int, to: str) -> str:
    parts = GOOD.split("-")
    parts[part] = to
    return "-".join(parts)


@pytest.mark.parametrize("header", SW8)
def test_sw8_of_an_agent_is_read_and_written_the_same(header: str) -> None:
    assert headers.read_sw8(header) == SW8[header]
    assert headers.write_sw8(SW8[header]) == header


@pytest.mark.parametrize("header", SW6)
def test_sw6_of_an_agent_is_read_and_written_the_same(header: str) -> None:
    assert headers.read_sw6(header) == SW6[header]
    assert headers.write_sw6(SW6[header]) == header


@pytest.mark.parametrize(
    "header",
    [
        "",
        "1-------",
        "garbage",
        GOOD.rsplit("-", 1)[0],
        GOOD + "-YQ==",
        changed(0, "2"),
        *(changed(3, number) for number in ("", "x", "-1", "2147483648", "9223372036854775807", "1_0", "٣")),
        *(changed(part, "") for part in (1, 2, 4, 5, 6, 7)),
        *(changed(part, "@@@") for part in (1, 2, 4, 5, 6, 7)),
        changed(4, "/w=="),  # not UTF-8
        *(changed(part, "eHh4" * 51) for part in (1, 2)),  # 153 characters, more than SkyWalking stores
        *(changed(part, "YQpi") for part in (1, 2)),  # two lines: an id gets into logs
        "1-" + "x" * 100_000,
    ],
)
def test_what_is_not_exactly_sw8_is_ignored(header: str) -> None:
    assert headers.read_sw8(header) is None


@pytest.mark.parametrize(
    "header",
    [
        changed(3, "2147483647"),
        changed(0, "0"),
        GOOD.replace("=", ""),
        f" {GOOD} ",
        changed(1, "NC4xNzk1MjI4MDAyMjI2LjE3OTUyMjgwMDIyMzQ5MzYy"),
    ],
)
def test_what_agents_accept_is_accepted(header: str) -> None:
    """The highest number, an unsampled trace, base64 without its padding, and an id of three numbers."""
    assert headers.read_sw8(header) is not None


@pytest.mark.parametrize(
    ("part", "to"),
    [
        (4, "0"),
        (5, "0"),
        (4, "-1"),
        (6, ""),
        (6, "MTI3LjAuMC4x"),  # an address without '#'
        (7, ""),
        (8, ""),
        (8, "L2NoZWNrb3V0"),  # an endpoint without '#'
        (1, "NC4x"),  # two numbers
        (2, "NC4xLjk5OTk5OTk5OTk5OTk5OTk5OTk="),  # beyond 64 bits
        (0, "2"),
    ],
)
def test_what_is_not_exactly_sw6_is_ignored(part: int, to: str) -> None:
    parts = next(iter(SW6)).split("-")
    parts[part] = to
    assert headers.read_sw6("-".join(parts)) is None
    assert headers.read_sw6("-".join(parts[:7])) is None


def test_an_id_of_6_may_have_a_negative_part() -> None:
    """A clock that was set back makes one."""
    reference = next(iter(SW6.values()))._replace(trace_id="4.17.-5")
    assert headers.read_sw6(headers.write_sw6(reference)) == reference


names = st.text(min_size=1, max_size=50).filter(lambda text: text.encode("utf-8", "replace").decode() == text)


@given(names.filter(str.isprintable), names, names, st.integers(0, 2**31 - 1), st.booleans())
def test_what_is_written_is_read_again(id_: str, name: str, other: str, number: int, sampled: bool) -> None:
    reference = Reference(id_, id_[::-1], number, sampled, other, name, other, name)
    assert headers.read_sw8(headers.write_sw8(reference)) == reference


def test_correlation_has_limits() -> None:
    assert headers.write_correlation({"tenant": "acme"}) == "dGVuYW50:YWNtZQ=="
    assert headers.read_correlation("dGVuYW50:YWNtZQ==, x , Og==:@@") == {"tenant": "acme"}
    many = {str(number): "x" for number in range(9)}
    assert len(headers.read_correlation(headers.write_correlation({"long": "x" * 129, **many}))) == 3
    # Of a header that is too long, the last pair would be cut and have another value.
    assert headers.read_correlation(f"{'A' * 4000}:{'QUFB' * 30}") == {}


@pytest.mark.parametrize(("header", "skips"), [("1-1700000000000", True), ("0- ", False), ("0-", False), ("", None)])
def test_extension(header: str, skips: bool | None) -> None:
    assert headers.skips_analysis(header) is skips


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (TRACE, TRACE),
        (TRACE.upper(), TRACE),
        ("de5980b8-fce3-4a37-aab9-b4ac3af7eedd", "de5980b8fce34a37aab9b4ac3af7eedd"),
        ("de5980b8fce34a37aab9b4ac3af7eedd.1.16563474296430001", "de5980b8fde34a371be41bcd5e2fd4dd"),
        ("56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430001", "56a5e1c515ae4c7613e51e7cf616977f"),
        ("4.1795228002226.17952280022349362", "c5923d217415483a112294a27004f792"),
        ("3.54.16563474296430001", "894ee1b3b60399ecbebe97dc483bb587"),
        ("hello-网关", "13cdf5aaa1561475b03b9979ff04b44c"),
        ("4504353231704428.3646282601018.3440746967452", TRACE),
    ],
)
def test_trace_ids_of_skywalking(text: str, found: str) -> None:
    assert ids.trace_id_of(text).hex() == found


@pytest.mark.parametrize(
    ("segment", "number", "found"),
    [
        ("56a5e1c519ae4c76a2b8b11d92cead7f.12.16563474296430000", 3, "4740ffb9e3b8db09"),
        ("4f2f27748b8e44ecaf18fe0347194e86.33.16560607369950066", 123, "e9c455a82542306a"),
        ("4f2f27748b8e44ecaf18fe0347194e86", 123, "9b37d977cc970a6a"),
        ("4f2f2774-8b8e-44ec-af18-fe0347194e86", 123, "9b37d977cc970a6a"),
        ("4.1795228002225.17952280022349772", 1, "cd6caea30da20da4"),
        ("de88986043c0471f82eb7df8ea26e9e5.117.16818972022146612", 0, "68653b8c182695fa"),
        # The Collector's rule is weak. References to spans of agents are those of their headers, not made of these ids.
        ("de88986043c0471f82eb7df8ea26e9e5.117.16818972022146614", 2, "68653b8c182695fa"),
    ],
)
def test_span_ids_of_skywalking(segment: str, number: int, found: str) -> None:
    assert ids.span_id_of(segment, number).hex() == found


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8))
def test_the_segment_of_a_span_leads_back_to_the_span(trace_id: bytes, span_id: bytes) -> None:
    if not any(span_id) or not any(trace_id):
        return
    assert ids.trace_id_of(ids.trace_text(trace_id)) == trace_id
    assert ids.trace_id_of(ids.trace_numbers(trace_id)) == trace_id
    assert ids.three_numbers(ids.segment_numbers(trace_id, span_id)) is not None
    assert ids.span_id_of(ids.segment_text(trace_id, span_id), 0) == span_id
    assert ids.span_id_of(ids.segment_numbers(trace_id, span_id), 0) == span_id


@given(st.text())
def test_every_text_has_an_id(text: str) -> None:
    assert len(ids.trace_id_of(text)) == 16
    assert len(ids.span_id_of(text, 7)) == 8
    assert any(ids.trace_id_of(text))


def test_an_id_of_zeros_gets_a_hash() -> None:
    assert any(ids.trace_id_of("0" * 32))
    assert any(ids.span_id_of("0" * 32, 0))
