"""Every page of the desk is accessible according to axe-core, on a screen in light colours and on a phone in dark ones."""

import pytest

from tests.support.accessibility import BEYOND, find
from tests.support.desk import desk_of_shop
from tests.support.pages import PAGES, fill, views

PHONE, SCREEN = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
# One row is marked as done. A few rows represent similar ones, and one route and one schema represent the contract.
UNFOLD = """
() => {
  document.querySelectorAll("details").forEach((folded) => (folded.open = true));
  const others = (alike, most) => [...document.querySelectorAll(alike)].slice(most);
  others("tbody tr:not(:last-child)", 5).forEach((row) => (row.hidden = true));
  for (const alike of [".opblock:not(.is-open)", ".models .json-schema-2020-12"]) others(alike, 1).forEach((one) => one.remove());
  document.querySelectorAll("tbody tr:last-child, li.letter:last-child").forEach((row) => row.classList.add("is-gone"));
}
"""


@pytest.fixture(scope="module")
def desk():
    with desk_of_shop() as desk:
        fill(desk)
        yield desk


@pytest.fixture(scope="module")
def opened(context, forget, desk):
    """Open a page that all tests share, because none of them changes anything."""
    page = context.new_page()
    page.goto(desk.address())
    yield page
    page.goto("about:blank")
    forget()


def show(page, desk, shown):
    page.set_viewport_size(SCREEN)
    page.emulate_media(color_scheme="light")
    page.goto(f"{desk.origin}/desk/{shown.path}")
    page.get_by_role("heading", level=1, name=shown.title, exact=True).wait_for()
    page.locator("#view[aria-busy=false]").wait_for()
    for name in shown.press:
        page.get_by_role("button", name=name).or_(
            page.get_by_role("checkbox", name=name)
        ).first.click()
    page.evaluate(UNFOLD)


def test_every_view_has_a_page_here():
    # tests/infra/test_dashboard.py covers the dashboard.
    assert {page.view for page in PAGES} == set(views()) - {"dashboard"}


@pytest.mark.parametrize("shown", PAGES, ids=lambda page: page.path)
def test_everybody_can_read_and_use_the_page(opened, desk, shown):
    show(opened, desk, shown)
    found = find(opened)
    opened.emulate_media(color_scheme="dark")
    opened.set_viewport_size(PHONE)
    found += [f"phone, dark: {one}" for one in find(opened)]
    found += [f"phone: {one}" for one in opened.evaluate(BEYOND)]
    assert found == []


def test_mistakes_are_found(opened, desk):
    show(opened, desk, PAGES[0])
    opened.evaluate("""() => {
      document.getElementById("search").removeAttribute("aria-label");
      document.getElementById("search").removeAttribute("placeholder");
      document.getElementById("title").style.color = "#aaa";
      const control = document.createElement("button");
      Object.assign(control.style, { minHeight: "20px", padding: 0, position: "absolute", left: "385px", borderColor: "#ddd" });
      control.textContent = "small";
      document.getElementById("view").append(control);
    }""")
    found = find(opened)
    assert [one.split(":")[0] for one in found] == ["color-contrast", "label", "faint"]
    opened.set_viewport_size(PHONE)
    assert len(opened.evaluate(BEYOND)) == 2
    opened.reload()
