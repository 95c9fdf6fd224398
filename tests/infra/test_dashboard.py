"""The deployed dashboard, shown on the local page, is complete, compact and accessible.

tests/pages/test_dashboard_page.py tests the page's behaviour. This test is here because it needs a template.
"""

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from local.desk.site import Site, serving
from tests.support.accessibility import AXE, BEYOND, FIND, STANDARDS
from tests.support.dashboard import DashboardOfTemplate
from tests.support.desk import TOKEN, LiveByHand

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
    desk = MagicMock()
    about = {"place": "made up", "embedded": True, "production": False}
    desk.about.return_value = {**about, "currency": {"code": "", "digits": 0}}
    here = service, SimpleNamespace()
    with serving(Site(desk, TOKEN, LiveByHand(), *here)) as port:
        page.goto(f"http://127.0.0.1:{port}/dashboard#token={TOKEN}")
        page.wait_for_selector("body[data-now]")
        yield page
        page.goto("about:blank")


def test_the_deployed_dashboard_is_compact_complete_and_accessible(shown, service):
    shown.evaluate(AXE)
    found = []
    for (width, most), scheme in zip(MOST_PIXELS.items(), ("light", "dark"), strict=True):
        shown.emulate_media(color_scheme=scheme)
        shown.set_viewport_size({"width": width, "height": 900})
        assert 1500 < shown.evaluate("document.documentElement.scrollHeight") <= most
        found += shown.eval_on_selector_all("h2, h3, .legend li, .limit", CUT)
        found += shown.evaluate(BEYOND)
        found += shown.evaluate(FIND, {"type": "tag", "values": STANDARDS})
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
    assert "10 charts and 29 alarms" in unmeasured
    on = shown.eval_on_selector_all("[data-alarm]", "all => all.map(one => one.dataset.alarm)")
    assert on == ["Order Queue Dead Letters", "Messages Dead Lettered"]
    rows = shown.locator("#alarms tbody tr").count()
    assert rows + len(on) == len(service.snapshot("latest")["alarms"])

    loans = shown.inner_text('[data-title="Loans lost to concurrent writers"]')
    assert "of loans 66.7" in " ".join(loans.split())
    assert "alarm above 25 % for 3 periods of 5 min" in loans
    assert (
        "Beyond the threshold at times, but Loans Lost is off. Average: 66.67 % in the last 5 min"
        in loans
    )
