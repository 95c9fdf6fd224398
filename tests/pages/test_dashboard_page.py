"""The dashboard's page in a real browser, with made-up data: what is drawn can be read, and popups have a way out.

The page of the API's contract beside it: it shows every route, and needs nothing else.
"""

from types import SimpleNamespace

import pytest
import yaml

from local import ROOT
from local.dashboard import browser
from local.desk.site import Site, serving
from operations.errors import UserError
from tests.support.desk import TOKEN

COUNT = 21
CONTRACT = yaml.safe_load((ROOT / "docs" / "openapi.yaml").read_text("utf-8"))
ORANGE, PURPLE, GREY, RED = "#ff7f0e", "#9467bd", "#7f7f7f", "#d62728"


def series(label, color, points):
    overall = sum(value or 0 for value in points)
    return {"label": label, "color": color, "points": points, "overall": overall, "unknown": None}


def graph(title, *drawn, stacked=False, lines=()):
    place = {"x": 0, "y": 4, "width": 24, "height": 8}
    rest = {"stacked": stacked, "unit": "per period", "least": 0, "lines": list(lines)}
    return place | {"kind": "graph", "title": title, "series": list(drawn)} | rest


def alarm(state="OK"):
    return {"name": "Dead Letters", "state": state, "reason": "0 of 1", "description": "First: go"}


class FakeService:
    """What the page is told."""

    def __init__(self):
        self.looks = 0
        self.said = {}

    def show(self, *widgets, alarms=None, **said):
        """Say something else from now on."""
        place = {"x": 0, "y": 0, "width": 24, "height": 4}
        shown = place | {"kind": "alarms", "title": "Alarms", "alarms": alarms or [alarm()]}
        self.said = {
            "name": "Made up",
            "endpoint": "http://127.0.0.1:1",
            "layout": str(hash(str(widgets))),
            "problem": "",
            "ready": True,
            "traffic": True,
            "earlier": False,
            "start": 1_800_000_000,
            "period": 1,
            "count": COUNT,
            "widgets": [shown, *widgets],
        } | said

    def snapshot(self, _):
        self.looks += 1
        return self.said | {"now": 1_800_000_000 + self.looks}


@pytest.fixture
def service():
    made = FakeService()
    made.show()
    return made


@pytest.fixture
def url(service):
    about = {"place": "made up", "embedded": True, "production": False}
    desk = SimpleNamespace(**dict.fromkeys(("carry_out", "settle")), about=lambda: about)
    with serving(Site(desk, TOKEN, service, SimpleNamespace())) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def show(page, url, service):
    """Opens the page with widgets and whatever else it is told."""

    def opened(*widgets, **said):
        service.show(*widgets, **said)
        page.goto(f"{url}/dashboard#token={TOKEN}")
        page.wait_for_selector("body[data-now]")

    return opened


def look_again(page):
    """Do not wait for the next second."""
    page.evaluate("poll()")


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
    """For each column of pixels of a graph: which rows, counted from the top, have exactly these colours."""
    return page.evaluate(COLUMNS, [title, list(colors)])


def test_a_stacked_area_shows_its_own_series_in_its_own_colour_only(page, show):
    many = series("many", ORANGE, [400] * COUNT)
    nothing = series("nothing", RED, [None] * COUNT)
    zero = series("zero", GREY, [0] * COUNT)
    fewer = series("fewer", PURPLE, [100] * COUNT)
    show(graph("Parts", many, nothing, zero, fewer, stacked=True))
    found = columns(page, "Parts", ORANGE, RED, GREY, PURPLE)
    assert not any(RED in column or GREY in column for column in found), "no units, no colour"
    many, fewer = found[600][ORANGE], found[600][PURPLE]
    assert many["rows"] == pytest.approx(4 * fewer["rows"], abs=8)
    assert fewer["bottom"] < many["top"], "no area covers another one"
    assert "per period, stacked" in page.inner_text('[data-title="Parts"] h3')


def test_a_thin_area_is_a_thin_strip_and_still_seen(page, show):
    many = series("many", ORANGE, [564] * COUNT)
    two = series("two", PURPLE, [2] * COUNT)
    show(graph("Parts", many, two, stacked=True))
    column = columns(page, "Parts", ORANGE, PURPLE)[600]
    assert 1 <= column[PURPLE]["rows"] <= 3
    assert column[ORANGE]["rows"] > 100


def test_a_single_moment_between_pauses_is_seen(page, show):
    lone = [None] * COUNT
    lone[10] = 3
    show(graph("Parts", series("lone", ORANGE, lone), stacked=True))
    seen = [column[ORANGE]["rows"] for column in columns(page, "Parts", ORANGE) if column]
    assert 3 <= len(seen) <= 6
    assert min(seen) > 100


@pytest.mark.parametrize("count", [COUNT, 300])
def test_a_single_point_is_a_dot_and_a_line_has_none(page, show, count):
    lone, line = [None] * count, [None] * count
    lone[10], line[1:] = 1, [1] * (count - 1)
    drawn = series("lone", RED, lone), series("line", ORANGE, line)
    show(graph("One", drawn[0]), graph("Many", drawn[1]) | {"y": 12}, count=count)
    dot = [column[RED] for column in columns(page, "One", RED) if column]
    assert 4 <= max(one["rows"] for one in dot) <= 8
    assert 4 <= len(dot) <= 8
    thick = max(column[ORANGE]["rows"] for column in columns(page, "Many", ORANGE) if column)
    assert thick <= 3
    assert "stacked" not in page.inner_text('[data-title="Many"]')


def test_no_title_is_cut_off(page, show):
    narrow = {"width": 6, "height": 6}
    long = graph("From the outcome until it is published", series("one", RED, [1] * COUNT))
    units = graph("Capacity", series("one", RED, [1] * COUNT)) | narrow | {"x": 6}
    page.set_viewport_size({"width": 1360, "height": 1000})
    units |= {"unit": "write units per placed order", "stacked": True}
    fired = alarm("ALARM") | {"name": "Order Command Queue Oldest Message"}
    show(long | narrow, units, alarms=[fired] * 52)
    cut = page.eval_on_selector_all(
        "h3, h3 small, .alarm-list, .alarm-list button",
        "all => all.filter(one => one.scrollWidth > one.clientWidth && one.clientWidth > 0)"
        ".map(one => one.textContent)",
    )
    assert cut == []


def test_the_label_of_a_line_covers_no_curve(page, show):
    lines = [
        {"value": 5, "label": "healthy below 5 %", "color": RED},
        {"value": 1200, "label": "longer than any lease", "color": RED},
    ]
    show(graph("Rate", series("rate", PURPLE, [7] * COUNT), lines=lines))
    page.wait_for_selector('[data-line="longer than any lease"] small:visible')
    legend = page.inner_text('[data-title="Rate"] .legend')
    assert "healthy below 5 %" in legend
    assert "longer than any lease 1,200" in legend
    assert page.locator('[data-line="healthy below 5 %"] small').is_hidden()
    red = [column[RED] for column in columns(page, "Rate", RED) if column]
    assert len(red) > 100, "the line is drawn"
    assert {(one["top"], one["bottom"]) for one in red} == {(red[0]["top"], red[0]["top"])}


def test_an_unavailable_metric_shows_its_reason_instead_of_zero(page, show):
    units, rows = (series(name, RED, []) | {"unknown": "no metrics"} for name in ("units", "rows"))
    known = series("orders", ORANGE, [1] * COUNT)
    show(graph("Nothing", units, rows), graph("Some", units, rows, known) | {"y": 12})
    nothing = page.locator('[data-title="Nothing"]')
    assert "Not known on this machine: no metrics." in nothing.inner_text()
    assert nothing.locator("canvas").count() == 0
    some = page.inner_text('[data-title="Some"]')
    assert "Not known on this machine: units, rows (no metrics)." in some


def test_the_legend_shows_the_moment_under_the_pointer(page, show):
    show(graph("Orders", series("placed", ORANGE, [1] * COUNT)))
    value = page.locator('[data-title="Orders"] .legend b')
    assert value.get_attribute("data-value") == str(COUNT)
    page.locator('[data-title="Orders"] .u-over').hover()
    page.locator('[data-title="Orders"] .legend b[data-value="1"]').wait_for()


def test_the_explanation_of_an_alarm_works_by_keyboard(page, show):
    show()
    button = page.locator('[data-name="Dead Letters"] button')
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_visible()
    assert page.get_by_role("dialog", name="Dead Letters: OK").inner_text().count("First: go") == 1
    assert page.evaluate("document.activeElement.textContent") == "Close"
    page.keyboard.press("Escape")
    assert page.locator("dialog").is_hidden()
    assert page.evaluate("document.activeElement.textContent") == "Dead Letters"
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert page.locator("dialog").is_hidden(), "the second one pressed Close"


def test_the_explanation_closes_by_its_button_and_by_a_click_outside_only(page, show):
    show()
    button, dialog = page.locator('[data-name="Dead Letters"] button'), page.locator("dialog")
    button.click()
    dialog.get_by_role("button", name="Close").click()
    assert dialog.is_hidden()
    button.click()
    dialog.locator("#explanation-meaning").click()
    box = dialog.bounding_box()
    page.mouse.click(box["x"] + 4, box["y"] + 4)
    assert dialog.is_visible(), "its text can be selected"
    page.mouse.click(box["x"] - 20, box["y"] - 20)
    assert dialog.is_hidden()


def test_the_explanation_stays_true_while_it_is_open(page, show, service):
    show()
    page.locator('[data-name="Dead Letters"] button').click()
    service.said["widgets"][0]["alarms"] = [alarm("ALARM")]
    look_again(page)
    page.get_by_role("dialog", name="Dead Letters: ALARM").wait_for()
    service.show(graph("Deployed meanwhile", series("one", ORANGE, [1] * COUNT)))
    look_again(page)
    page.wait_for_selector('[data-title="Deployed meanwhile"]')
    assert page.locator("dialog").is_visible()


def test_a_notice_can_be_closed_and_stays_closed_until_there_is_another_one(page, show, service):
    show(traffic=False)
    notice = page.locator("#notice")
    notice.get_by_text("run make demo").wait_for()
    notice.get_by_role("button", name="Close this notice").click()
    look_again(page)
    assert notice.is_hidden()
    service.show(problem="no answer")
    look_again(page)
    notice.wait_for()
    assert "no answer" in notice.inner_text()
    page.keyboard.press("Escape")
    assert notice.is_hidden()
    service.show()
    look_again(page)
    service.show(problem="no answer")
    look_again(page)
    notice.wait_for()


def test_earlier_traffic_is_named(page, show, service):
    show()
    assert "earlier traffic" not in page.inner_text("#about")
    service.show(earlier=True)
    look_again(page)
    assert "There was earlier traffic: choose a longer range" in page.inner_text("#about")


def test_the_contract_is_shown_with_every_route_and_loads_nothing_from_elsewhere(page, url, show):
    show()
    asked = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(url)))
    page.get_by_role("link", name="API").click()
    page.wait_for_url(f"{url}/contract")
    page.locator(".models").wait_for()
    routes = [
        f"{method.upper()} {path} {operation['summary']}"
        for path, item in CONTRACT["paths"].items()
        for method, operation in item.items()
        if method != "parameters"
    ]
    heads = page.locator(".opblock-summary").all_inner_texts()
    # Paths may break at invisible spaces.
    assert [" ".join(head.replace("\u200b", "").split()) for head in heads] == routes
    schemas = page.locator(".models [data-json-schema-level='0'] .json-schema-2020-12__title")
    assert schemas.all_inner_texts() == list(CONTRACT["components"]["schemas"])
    assert page.locator(".errors-wrapper").count() == 0
    files = "contract contract.css contract.js common.js page.css swagger-ui.css swagger-ui.js openapi.yaml"
    # Images within the style are loaded from nowhere.
    # So are the figures, which the page before may still ask for.
    loaded = {one for one in asked if not one.startswith(("data:", "/data/dashboard?"))}
    assert loaded <= {f"/{name}" for name in ("icon.svg", "data/about", *files.split())}


def test_a_link_opens_one_route_of_the_contract_on_a_phone_in_the_dark(page, url):
    page.set_viewport_size({"width": 400, "height": 800})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{url}/contract#token={TOKEN}")
    page.goto(f"{url}/contract#/orders/placeOrder")
    page.reload()
    page.locator(".responses-table").wait_for()
    shown = page.inner_text(".opblock.is-open")
    route = CONTRACT["paths"]["/orders"]["post"]
    body = CONTRACT["components"]["schemas"]["NewOrder"]["properties"]
    wanted = (route["parameters"][0]["name"], *body, *route["responses"])
    assert [one for one in wanted if one not in shown] == []
    assert "Try it out" in shown
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    assert page.locator("html.dark-mode").count() == 1
    page.emulate_media(color_scheme="light")
    page.locator("html:not(.dark-mode)").wait_for()


def test_without_a_browser_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(browser, "_NAMES", ("chromium",))
    with pytest.raises(UserError, match="apt-get install chromium"):
        browser.take_picture("http://127.0.0.1:1", tmp_path / "x.png", None)
