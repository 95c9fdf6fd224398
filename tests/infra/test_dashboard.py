"""The deployed dashboard, shown on the local page, is complete, compact and accessible.

tests/pages tests the page's behaviour. This test is here because it needs a template.
"""

import pytest

from local.desk.site import Site, serving
from tests.support.accessibility import BEYOND, find
from tests.support.dashboard import DashboardOfTemplate
from tests.support.desk import TOKEN, no_stack

MOST_PIXELS = {1280: 3000, 390: 6000}
CUT = """
all => all.filter(one => one.scrollWidth > one.clientWidth && one.clientWidth > 0).map(one => one.textContent)
"""


@pytest.fixture
def service():
    return DashboardOfTemplate()


@pytest.fixture
def shown(page, service):
    """Open the dashboard page with the values of a busy minute."""
    with serving(Site(no_stack, TOKEN, dashboard=service)) as port:
        page.goto(f"http://127.0.0.1:{port}/desk/dashboard#token={TOKEN}")
        page.wait_for_selector("body[data-now]")
        yield page
        page.goto("about:blank")


def test_the_deployed_dashboard_is_compact_and_complete(shown, service):
    found = find(shown)
    shown.emulate_media(color_scheme="dark")
    found += find(shown)
    for width, most in MOST_PIXELS.items():
        shown.set_viewport_size({"width": width, "height": 900})
        assert 1500 < shown.evaluate("document.documentElement.scrollHeight") <= most
        found += shown.eval_on_selector_all("h2, h3, .legend li, .limit", CUT)
        found += shown.evaluate(BEYOND)
    assert found == []

    widgets = [one for one in service.snapshot("latest")["widgets"] if one["kind"] == "graph"]
    titles = shown.eval_on_selector_all("figure", "all => all.map(one => one.dataset.title)")
    unmeasured = shown.text_content("#unmeasured")
    for widget in widgets:
        labels = [one["label"] for one in widget["series"] if one["unknown"] is None]
        assert (widget["title"] in titles) == bool(labels)
        if len(labels) < len(widget["series"]):
            assert widget["title"] in unmeasured
        legend = f'[data-title="{widget["title"]}"] .legend li[data-label]'
        assert shown.eval_on_selector_all(legend, "all => all.map(o => o.dataset.label)") == labels
    assert len(titles) > 25
    assert "10 charts and 42 alarms" in unmeasured
    on = shown.eval_on_selector_all("[data-alarm]", "all => all.map(one => one.dataset.alarm)")
    assert on == ["Order Queue Dead Letters", "Messages Dead Lettered"]
    rows = shown.locator("#alarms tbody tr").count()
    assert rows + len(on) == len(service.snapshot("latest")["alarms"])
