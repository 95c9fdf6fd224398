"""Stocktakes at the desk of an in-memory tea shop, in a browser: scan, number, next, by several people at once."""

import re
from urllib.parse import quote

from local.sample_orders import catalogue
from tests.support import accessibility
from tests.support.desk import TEA, said, show
from tests.support.hands import enter, scan

PHONE = {"width": 390, "height": 844}
TITLE = "Count stock"
HOJICHA, DECAF = "tea-hojicha", "tea-earl-grey-decaf"
GTIN = "4006381333931"
MOST_ACTS = 45
EXPECTED = re.compile(r'"(onHand|stockCount|available|committed)"')


def counts(desk, product_id):
    """Return the counts of a product as pairs of units and correction, by id."""
    listed = desk.get(f"/api/products/{quote(product_id)}/adjustments?limit=100")["adjustments"]
    return [(one["counted"], one["delta"]) for one in listed if one["reason"] == "COUNT"]


def row(page, product_id):
    table = page.get_by_role("table", name="Counted")
    return table.get_by_role("row").filter(has=page.get_by_text(product_id, exact=True))


def begin(page, desk, name="Winter", *, is_blind=False):
    show(page, desk, "count", TITLE)
    page.get_by_label("Stocktake").fill(name)
    if is_blind:
        page.get_by_label("blind").check()


def counted(page, desk, product_id, units):
    """Scan a product, and type its units."""
    scan(page, product_id, "Enter")
    page.get_by_text(f"Expected: {desk.stock(product_id)['onHand']}").wait_for()
    page.locator("[name=counted]:focus").fill(str(units))


def test_fifteen_products_are_counted_blind_on_a_phone_with_few_taps_and_scans(page, desk):
    products = [product.product_id for product in catalogue()][:15]
    codes = [{"code": GTIN}]
    desk.command("ManageProducts", action="change", productId=products[0], barcodes=codes)
    there = {each: desk.stock(each)["onHand"] for each in products}
    found = {each: number for number, each in enumerate(products, 5)}
    page.set_viewport_size(PHONE)
    begin(page, desk, is_blind=True)
    acts = 1  # the name is there already
    shown = []

    def hear(answer):
        if "/api/" in answer.url:
            shown.append(answer.text())

    page.on("response", hear)
    field = page.locator("[name=counted]")
    for product_id, units in found.items():
        scan(page, GTIN if units == 5 else product_id, "Enter")
        page.locator("[name=counted]:focus").wait_for()
        assert field.input_value() == ""
        assert not any(map(EXPECTED.search, shown))
        field.fill(f"{units}")
        acts += 1 + len(f"{units}")
        if units == 12:
            # What has been typed is still there after a reload, and sales make no difference.
            page.get_by_role("heading", name=desk.stock(product_id)["name"]).wait_for()
            page.reload()
            page.get_by_role("heading", name=desk.stock(product_id)["name"]).wait_for()
            page.locator("[name=counted]:focus").wait_for()
            assert field.input_value() == f"{units}"
            desk.sell("o-1", (product_id, 2))
            desk.command("ChangeOrders", action="fulfil", orderId="o-1")
    enter(page)
    acts += 1
    said(page, "Counted here: 15 products", "heading")
    row(page, products[-1]).get_by_text("Booked", exact=True).wait_for()
    assert acts <= MOST_ACTS
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    for product_id, units in found.items():
        assert counts(desk, product_id) == [(units, units - there[product_id])]
        assert desk.stock(product_id)["onHand"] == units - 2 * (units == 12)
    assert accessibility.find(page) == []

    page.get_by_role("link", name="Report").click()
    page.get_by_role("heading", level=1, name="Report: Winter").wait_for()
    fewer = sum(found.values()) - sum(there.values())
    facts = page.locator("dl").inner_text().split("\n")
    assert facts[1::2] == ["15", "15", "0", f"{fewer:,}"]
    report = page.get_by_role("table", name="Counted", exact=True).get_by_role("row")
    assert report.count() == 16
    first = report.filter(has=page.get_by_text(products[0], exact=True)).inner_text()
    assert all(words in first for words in (f"{there[products[0]]:,}", f"{5 - there[products[0]]}"))
    missing = page.get_by_role("table", name="Not counted").get_by_role("row")
    assert missing.count() == 1 + len(catalogue()) - 15
    assert accessibility.find(page) == []
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    saved = download.value.path().read_text("utf-8-sig").splitlines()
    assert len(saved) == 1 + len(catalogue())
    assert f",{there[products[1]]},6,{6 - there[products[1]]}," in "\n".join(saved)


def test_two_people_count_one_shelf_at_once_nothing_is_booked_twice_and_each_is_told(
    page, context, desk
):
    other = context.new_page()
    other.goto(desk.address())
    begin(page, desk)
    begin(other, desk, " winter")
    # Both begin to count a product. The one who is faster books it.
    counted(page, desk, TEA, 58)
    counted(other, desk, TEA, 57)
    enter(page)
    said(page, "Earl Grey: 58, -2 against the books")
    # The other's next scan books, too.
    scan(other, HOJICHA, "Enter")
    said(other, "Earl Grey was counted before: 58 units by you, Jan 15", "alert")
    assert counts(desk, TEA) == [(58, -2)]
    other.get_by_role("heading", name="Hojicha").wait_for()
    other.locator("[name=counted]").fill("40")
    scan(other, DECAF, "Enter")
    other.get_by_role("heading", name="Earl Grey Decaf").wait_for()
    other.get_by_role("button", name="Skip it").click()

    # The first one is told at the scan, and does nothing or counts again.
    expected = desk.stock(HOJICHA)["onHand"]
    scan(page, HOJICHA, "Enter")
    said(page, "Hojicha was counted before: 40 units by you", "alert")
    page.get_by_role("button", name="Count again", exact=True).click()
    page.get_by_text(f"Expected: {expected}").wait_for()
    page.locator("[name=counted]").fill("41")
    enter(page)
    said(page, "Hojicha: 41, +1 against the books")
    assert [each for each, _ in counts(desk, HOJICHA)] == [40, 41]
    assert desk.stock(HOJICHA)["onHand"] == 41
    assert desk.stock(TEA)["onHand"] == 58

    # Under another name, a count that overlaps corrects nothing either.
    other.get_by_role("button", name="Another stocktake").click()
    other.get_by_label("Stocktake").fill("Spring")
    counted(other, desk, TEA, 50)
    page.get_by_role("button", name="Count again: Earl Grey").click()
    page.locator("[name=counted]").fill("58")
    enter(page)
    said(page, "Earl Grey: 58, as expected")
    enter(other)
    said(other, "nothing was booked, because another count of it was booked", "alert")
    said(other, "Counted here: 0 products", "heading")
    assert desk.stock(TEA)["onHand"] == 58
    other.close()


def test_scans_that_fit_nothing_cost_nothing_and_a_lost_answer_is_asked_for_again(page, desk):
    case = [{"code": GTIN, "units": 12}]
    desk.command("ManageProducts", action="change", productId=TEA, barcodes=case)
    show(page, desk, "stocktake/", "Cannot show this page")
    page.get_by_text("open Count, enter the name of the stocktake").wait_for()
    begin(page, desk, " ")
    page.get_by_text(f"{HOJICHA}, never counted").wait_for()
    page.get_by_label("Product or code").focus()
    scan(page, TEA, "Enter")
    said(page, "Enter the name of the stocktake first.", "alert")
    page.locator("[name=name]:focus").fill("Winter")
    scan(page, "4006381333932", "Enter")
    said(page, "4006381333932: the check digit of 4006381333932 is wrong; scan it again", "alert")
    page.locator("[name=scanned]:focus").wait_for()
    scan(page, TEA, "Enter")
    page.locator("[name=counted]:focus").wait_for()
    scan(page, HOJICHA, "Enter")
    said(page, "Enter the units of Earl Grey, or skip it", "alert")
    assert page.locator("[name=counted]").input_value() == ""

    def lose(route):
        route.fetch()
        route.abort("aborted")

    # No language makes 35 of it.
    page.locator("[name=counted]").fill("3,5")
    enter(page)
    said(page, "Enter the units of Earl Grey, or skip it", "alert")
    assert page.locator("[name=counted]").input_value() == "3,5"
    # A case of what is being counted books nothing.
    page.locator("[name=counted]").fill("59")
    scan(page, GTIN, "Enter")
    said(page, "Earl Grey: how many?")
    assert page.locator("[name=counted]:focus").input_value() == "59"
    assert counts(desk, TEA) == []

    page.route("**/counts", lose, times=1)
    enter(page)
    row(page, TEA).get_by_text("Not answered yet").wait_for()
    page.reload()
    row(page, TEA).get_by_text("-1 against the books").wait_for()
    assert counts(desk, TEA) == [(59, -1)]

    # A count for which orders wait comes first.
    acquire = {"action": "acquire", "productId": HOJICHA, "seconds": 600, "holder": "shelf-7"}
    lease = desk.aws.invoke("CountStock", acquire | {"outliveInvocation": True})["lease"]
    counted(page, desk, HOJICHA, 12)
    enter(page)
    # It may be a slip: go back first.
    question = page.get_by_role("dialog")
    question.get_by_text(f"The books expect {desk.stock(HOJICHA)['onHand']:,}.").wait_for()
    question.get_by_role("button", name="Go back").click()
    said(page, "Hojicha: nothing was booked: count it again", "alert")
    page.get_by_role("button", name="Count again: Hojicha").click()
    page.locator("[name=counted]:focus").fill("12")
    enter(page)
    question.get_by_role("button", name="Yes, that is right").click()
    said(page, "another count is open on the product's page", "alert")
    desk.aws.invoke("CountStock", {"action": "release", "lease": lease})
    page.get_by_role("button", name="Send again").click()
    row(page, HOJICHA).get_by_text("against the books").wait_for()

    # What looks wrong, and what was not counted longest.
    desk.command("ManageProducts", action="change", productId=DECAF, backorderLimit=1000)
    desk.sell("o-1", (DECAF, desk.stock(DECAF)["available"] + 1))
    page.get_by_label("Show").select_option("looks wrong")
    page.get_by_role("cell", name="-1", exact=True).wait_for()
    assert page.get_by_role("table", name="What to count").get_by_role("row").count() == 2
    page.get_by_role("button", name="Count Earl Grey Decaf").click()
    page.get_by_role("heading", name="Earl Grey Decaf").wait_for()
