"""The tab of the page on requests to Ray Serve: what their time went to, by route, and by method of a deployment."""

from __future__ import annotations

from browsing import MakeReport, Report
from hand_made import MS, HandMade
from hand_served import Served

from ray_tracing_hooks._insight.analysis.functions import percentile
from ray_tracing_hooks._insight.analysis.generated import FIRST_PARTS
from ray_tracing_hooks._insight.analysis.wording import duration
from ray_tracing_hooks._insight.model.span import SERVER


def cells(opened: Report, kind: str) -> list[list[str]]:
    lines = opened.page.locator(f"#view-requests table.{kind} tbody tr").all()
    return [line.locator("td").all_text_contents() for line in lines]


def test_the_tables_have_the_figures_of_the_summary(report: MakeReport) -> None:
    opened = report("waiting_requests").open(view="requests")
    found = opened.analysis.requests
    assert found is not None
    assert opened.page.locator("#view-requests .note").text_content() == (
        f"60 requests to Ray Serve in {duration(found.time)} altogether, 1 failed."
    )
    parts = cells(opened, "parts")
    assert parts[0][0] == "Scorer.score: waiting for a replica"
    assert len(parts) == len(found.parts)
    assert parts[0][3] == duration(found.parts[0].time / found.count)
    (route,) = cells(opened, "routes")
    times = found.routes[0].durations
    assert route[:7] == [
        "GET /shop",
        "60",
        "1",
        *(duration(percentile(times, share)) for share in (0.5, 0.95, 0.99, 1)),
    ]
    methods = {row[0]: row for row in cells(opened, "methods")}
    assert set(methods) == {"Shop.__call__", "Scorer.score", "Words.__call__", "Words.embed"}
    (embed,) = [each for each in found.methods if each.name == "Words.embed"]
    assert methods["Words.embed"][8] == str(len(embed.batches))


def test_the_slowest_request_and_the_longest_wait_are_a_click_away(report: MakeReport) -> None:
    opened = report("waiting_requests").open(view="requests")
    found = opened.analysis.requests
    assert found is not None
    opened.page.locator("table.routes button.link").click()
    opened.settle()
    assert opened.js("store.chosenRow") == found.routes[0].slowest
    assert (opened.page.locator(".details h2").text_content() or "").startswith("GET /shop")
    opened.page.locator("table.methods tr", has_text="Scorer.score").locator("button.link").click()
    opened.settle()
    assert (opened.page.locator(".details h2").text_content() or "").startswith("Scorer.score serve.remote")


def test_the_timeline_draws_the_phases_of_generations(report: MakeReport) -> None:
    run = Served()
    server = run.call(run.request(0, 200), "LLM.chat", 0, 0, 0, 200)
    run.generation(server, 20, 180, to_queue=5, queue=30, prefill=20, decode=100)
    opened = report(run.spans).open(view="timeline")
    (found,) = opened.js("[...store.phases.values()]")
    assert [(each["kind"], each["from"] / MS, each["to"] / MS) for each in found] == [
        (0, 25, 55),
        (1, 55, 75),
        (2, 75, 175),
    ]


def test_the_first_screen_of_requests_alone_says_what_their_time_went_to(report: MakeReport) -> None:
    """Not what a driver waited for, nor a critical path that is only the last request."""
    run = HandMade()
    for number in range(20):
        run.span(f"GET /{number}", 0, 300 - number, kind=SERVER, trace=number + 1)
    opened = report(run.spans).open()
    headings = opened.page.locator("#view-findings h2").all_text_contents()
    assert headings == ["Findings", "Where the time went", "Self time", "Data quality"]
    parts = opened.page.locator("#view-findings table.parts tbody tr td:first-child").all_text_contents()
    assert parts == [f"GET /{number}: in the proxy" for number in range(12)]
    assert opened.page.locator("#path").is_disabled()
    opened.page.locator("#view-findings section", has_text="and 8 other parts").locator("button.link").click()
    opened.settle()
    assert opened.page.locator("#view-requests").is_visible()


def test_the_note_says_what_does_not_fit_into_the_tables(report: MakeReport) -> None:
    run = HandMade()
    for number in range(250):
        run.span(f"GET /<b>{number}", 0, 300 - number, kind=SERVER, trace=number + 1)
    opened = report(run.spans).open(view="requests")
    assert len(cells(opened, "routes")) == 200
    assert (opened.page.locator("#view-requests .note").text_content() or "").endswith(
        " 100 rows of the tables with less time left out."
    )


def test_a_run_with_llm_engines_has_their_tables(report: MakeReport) -> None:
    opened = report("llm_serving").open(view="requests")
    found = opened.analysis.engines
    assert found is not None
    (chunks,) = found.first_chunks
    assert [(each[0], each[3]) for each in cells(opened, "firstchunks")] == [
        (FIRST_PARTS[each.kind], duration(each.median)) for each in chunks.parts
    ]
    caption = opened.page.locator("#view-requests table.firstchunks caption").text_content()
    median = duration(percentile(chunks.times, 0.5))
    assert caption is not None
    assert caption.startswith(
        f"Time to the first chunk of 27 streamed requests to LLMServer:tiny: median {median}, p95 "
    )
    assert [each[:7] for each in cells(opened, "generations")] == [
        ["tiny", "59", "", "1", "802", "0", "1,862"],
        ["tiny-embed", "1", "", "", "6", "0", "0"],
    ]
