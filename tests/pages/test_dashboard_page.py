"""The dashboard's page in a browser, with made-up data: it is readable, works by keyboard, and updates.

tests/infra/test_dashboard.py tests the deployed widgets and alarms.
"""

import pytest

from local.dashboard import browser
from local.desk.site import Site, serving
from operations.errors import UserError
from tests.support.desk import TOKEN, no_stack

COUNT = 21
ORANGE, PURPLE, GREY, RED = "#ff7f0e", "#9467bd", "#7f7f7f", "#d62728"


def series(label, color, points):
    overall = sum(value or 0 for value in points)
    return {"label": label, "color": color, "points": points, "overall": overall, "unknown": None}


def graph(title, *drawn, stacked=False, lines=()):
    rest = {"stacked": stacked, "unit": "per period", "least": 0, "lines": list(lines)}
    return {"kind": "graph", "title": title, "series": list(drawn)} | rest


def alarm(state="OK", name="Dead Letters", unknown=None, **more):
    said = {"name": name, "state": state, "reason": "0 of 1", "description": "First: go"}
    return said | {"unknown": unknown} | more


def limit(value, label, *alarms):
    return {"value": value, "label": label, "color": RED, "alarms": list(alarms)}


class FakeService:
    """The source of the page's data, which the test sets."""

    def __init__(self):
        self.spans = []
        self._said = {}

    def show(self, *widgets, alarms=None, **said):
        """Show other widgets from now on."""
        self._said = {
            "name": "Made up",
            "endpoint": "http://127.0.0.1:1",
            "problem": "",
            "ready": True,
            "now": self._said.get("now", 1_800_000_000) + 1,
            "traffic": True,
            "earlier": False,
            "start": 1_800_000_000,
            "period": 1,
            "count": COUNT,
            "alarms": [alarm()] if alarms is None else alarms,
            "widgets": widgets,
        } | said

    def snapshot(self, span):
        self.spans.append(span)
        return self._said


@pytest.fixture
def service():
    made = FakeService()
    made.show()
    return made


@pytest.fixture
def url(service):
    with serving(Site(no_stack, TOKEN, dashboard=service)) as port:
        yield f"http://127.0.0.1:{port}/desk"


@pytest.fixture
def show(page, url, service):
    """Open the page with these widgets and other content."""

    def opened(*widgets, **said):
        service.show(*widgets, **said)
        page.goto(f"{url}/dashboard#token={TOKEN}")
        page.wait_for_selector("body[data-now]")

    yield opened
    # The browser leaves the page before the server stops.
    page.goto("about:blank")


COLUMNS = """
([title, colors]) => {
  const canvas = document.querySelector(`[data-title="${title}"] canvas`);
  const { width, height } = canvas;
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
  const wanted = new Map(colors.map((color) => [parseInt(color.slice(1), 16), color]));
  const found = Array.from({ length: width }, () => ({}));
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < width; x += 1) {
      const at = 4 * (y * width + x);
      const color = wanted.get((data[at] << 16) | (data[at + 1] << 8) | data[at + 2]);
      if (color === undefined || data[at + 3] < 255) continue;
      found[x][color] ??= { top: y, rows: 0 };
      found[x][color].bottom = y;
      found[x][color].rows += 1;
    }
  }
  return found;
}
"""


def columns(page, title, *colors):
    """For each pixel column of a graph, return the vertical positions of the pixels with exactly these colours."""
    return page.evaluate(COLUMNS, [title, list(colors)])


def test_areas_are_as_high_as_their_values_in_their_own_colours_only(page, show):
    many, two = series("many", ORANGE, [400] * COUNT), series("two", PURPLE, [2] * COUNT)
    nothing, zero = series("nothing", RED, [None] * COUNT), series("zero", GREY, [0] * COUNT)
    fewer = series("fewer", PURPLE, [100] * COUNT)
    lone = [None] * COUNT
    lone[10] = 3
    show(
        graph("Parts", many, nothing, zero, fewer, stacked=True),
        graph("Thin", many, two, stacked=True),
        graph("Moment", series("lone", ORANGE, lone), stacked=True),
    )
    found = columns(page, "Parts", ORANGE, RED, GREY, PURPLE)
    assert not any(RED in column or GREY in column for column in found), (
        "a series without units has no colour"
    )
    middle = found[len(found) // 2]
    upper, lower = middle[ORANGE], middle[PURPLE]
    assert upper["rows"] == pytest.approx(4 * lower["rows"], abs=8)
    assert lower["bottom"] < upper["top"], "areas must not overlap"
    assert "per period, stacked" in page.inner_text('[data-title="Parts"] figcaption')

    strip = columns(page, "Thin", ORANGE, PURPLE)[len(found) // 2]
    assert 1 <= strip[PURPLE]["rows"] <= 3, "a thin area is still seen"
    assert strip[ORANGE]["rows"] > 40
    moment = [column[ORANGE]["rows"] for column in columns(page, "Moment", ORANGE) if column]
    assert 3 <= len(moment) <= 6, "a single moment between pauses is seen"
    assert min(moment) > 40


def test_a_single_point_is_a_dot_and_a_line_has_none(page, show):
    lone = [None] * COUNT
    lone[10] = 1
    line = [None] + [1] * (COUNT - 1)
    show(graph("One", series("lone", RED, lone)), graph("Many", series("line", ORANGE, line)))
    dot = [column[RED] for column in columns(page, "One", RED) if column]
    assert 4 <= max(one["rows"] for one in dot) <= 8
    assert 4 <= len(dot) <= 8
    assert max(one[ORANGE]["rows"] for one in columns(page, "Many", ORANGE) if one) <= 3
    assert "stacked" not in page.inner_text('[data-title="Many"]')


def test_the_label_of_a_limit_covers_no_curve_and_its_alarm_is_next_to_it(page, show, service):
    cool = alarm("OK", "Conflict Rate", isBeyond=True, reason="1 of 3 periods")
    far = alarm("OK", "Oldest", isBeyond=False)
    lines = [limit(5, "alarm above 5 %", cool), limit(1200, "alarm above 1,200", far)]
    rate = graph("Rate", series("rate", PURPLE, [7] * COUNT), lines=lines)
    show(rate)
    legend = page.locator('[data-title="Rate"] .legend')
    assert "alarm above 1,200 (above this chart)" in legend.inner_text()
    assert "above this" not in legend.locator('[data-limit="alarm above 5 %"]').inner_text()
    red = [column[RED] for column in columns(page, "Rate", RED) if column]
    assert len(red) > 100, "the line is drawn"
    assert {(one["top"], one["bottom"]) for one in red} == {(red[0]["top"], red[0]["top"])}
    words = page.locator('[data-title="Rate"] .limit')
    assert words.all_inner_texts() == [
        "Beyond the threshold at times, but Conflict Rate is off. 1 of 3 periods",
        "● Oldest is off. 0 of 1",
    ]
    cool["state"] = "ALARM"
    service.show(rate)
    words.get_by_text("▲ Conflict Rate is on. 1 of 3 periods").wait_for()


def test_what_is_not_measured_is_one_line_with_its_reasons(page, show):
    units, rows = (series(name, RED, []) | {"unknown": "no metrics"} for name in ("units", "rows"))
    known = series("orders", ORANGE, [1] * COUNT)
    silent = alarm("UNKNOWN", "Throttles", "it does not throttle")
    show(
        {"kind": "text", "title": "Nothing here?", "html": "", "advice": ""},
        graph("Nothing", units, rows),
        {"kind": "text", "title": "Something?", "html": "<b>Yes</b>.", "advice": "More."},
        graph("Some", units, rows, known),
        alarms=[alarm(), silent],
    )
    assert page.locator("figure").count() == 1
    assert page.locator("#view h2").all_inner_texts() == ["Something?"]
    summary = page.get_by_text("Not measured on this machine: 2 charts and 1 alarm, because")
    assert not page.get_by_text("it does not throttle").nth(1).is_visible()
    summary.press("Enter")
    said = " ".join(page.inner_text("#unmeasured").split())
    assert "Because no metrics Charts: Nothing, Some (units, rows) Because" in said
    assert said.endswith("Because it does not throttle Alarms: Throttles")
    page.get_by_text("Yes.").press("Enter")
    assert page.get_by_text("More.").is_visible()


def test_the_legend_shows_the_moment_under_the_pointer_or_of_the_arrow_keys(page, show):
    points = list(range(COUNT))
    show(graph("Orders", series("placed", ORANGE, points)), graph("More", series("x", RED, points)))
    values = page.locator(".legend b")
    assert [values.nth(n).get_attribute("data-value") for n in (0, 1)] == ["210", "210"]
    plot = page.get_by_role("img", name="Orders (per period): placed 210")
    plot.locator(".u-over").hover()
    page.locator('[data-title="More"] b[data-value="10"]').wait_for()
    page.mouse.move(0, 0)
    plot.focus()
    for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        plot = page.locator(":focus")
        plot.press(key)
    assert [values.nth(n).get_attribute("data-value") for n in (0, 1)] == ["19", "19"]
    assert plot.get_attribute("aria-label") == "Orders (per period): placed 19"
    plot.press("Escape")
    assert values.first.get_attribute("data-value") == "210"


def test_alarms_that_are_on_come_first_and_the_others_open_by_keyboard(page, show, service):
    blind = alarm("UNKNOWN", "Throttles", "no metrics", reason="Not measured.")
    new = alarm("UNKNOWN", "Sweep Silence", reason="There is no data so far.")
    show(alarms=[alarm(), blind, new])
    said = "No alarm is on, 1 off, 1 without data yet, 1 cannot be measured here"
    summary = page.locator("#alarms summary")
    assert summary.inner_text() == said
    assert page.locator("#alarms .alarm").count() == 0
    summary.press("Enter")
    row = page.get_by_role("row", name="Dead Letters")
    assert row.inner_text().split("\t") == ["Dead Letters", "● off", "0 of 1", "First: go"]
    service.show(alarms=[alarm("ALARM"), blind, new])
    page.get_by_role("status").get_by_text("1 alarm is on").wait_for()
    on = page.locator('[data-alarm="Dead Letters"]')
    assert on.inner_text().split("\n")[0] == "▲ Dead Letters"
    assert "First: go" in on.inner_text()
    assert page.locator("#alarms tbody").is_visible(), "the table stays open"


def test_the_page_asks_for_what_is_new_in_the_chosen_range(page, show, service):
    show(graph("One", series("placed", ORANGE, [1] * COUNT)), traffic=False)
    page.get_by_text("No traffic yet: place orders").wait_for()
    for _ in range(3):
        service.show(graph("Two", series("placed", ORANGE, [1] * COUNT)), earlier=True)
    page.wait_for_selector('[data-title="Two"]')
    assert page.get_by_text("No traffic yet").count() == 0
    assert "There was earlier traffic: choose a longer range" in page.inner_text("#about")
    page.get_by_label("Show").select_option("1 hour")
    page.wait_for_selector('body[data-range="1h"]')
    assert [*dict.fromkeys(service.spans)] == ["latest", "1h"]
    assert page.url.endswith("/dashboard?range=1h")
    page.reload()
    page.wait_for_selector('body[data-range="1h"]')
    service.show(problem="no answer")
    page.get_by_text("The embedded AWS cannot be read: no answer").wait_for()


def test_without_a_browser_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(browser, "_NAMES", ("chromium",))
    with pytest.raises(UserError, match="apt-get install chromium"):
        browser.find()
