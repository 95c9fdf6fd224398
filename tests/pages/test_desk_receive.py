"""Deliveries at the desk of an in-memory tea shop, in a browser: what is read, and what is booked once."""

import json
from urllib.parse import quote

from local.sample_orders import catalogue
from tests.support import accessibility
from tests.support.desk import TEA, said, show
from tests.support.hands import scan
from tests.support.pages import module

PHONE = {"width": 390, "height": 844}
HOJICHA, DECAF = "tea-hojicha", "tea-earl-grey-decaf"
GTIN, CASE = "4006381333931", "14006381333938"
PRICED = "2912345004996"  # with a price in it
TITLE = "Receive a delivery"
MOST_ACTS, MOST_CALLS = 30, 5

SHEETS = [
    ("a\t3\r\nb\t0\r\n\r\n", [["a", 3], ["b", 0]]),
    ("Product;Units\na;3\nb;4,0;EUR", [["a", 3], ["b", 4]]),
    ('\ufeff"a","3"\n0012,1\n', [["a", 3], ["0012", 1]]),
    ("tea-genmaicha 3\nLS  tea 12\nmug", [["tea-genmaicha", 3], ["LS  tea", 12], ["mug", 1]]),
    ("a\na\nb", [["a", 1], ["a", 1], ["b", 1]]),
    ("", []),
]
FAULTS = [
    ("a;3\nb;\n;4\n", ["Line 2: “” is not a whole", "Line 3 has no product"]),
    ("a;-1\na;1.5\na;x", ["Line 1: “-1”", "Line 2: “1.5”", "Line 3: “x”"]),
    ("4.00638E+12;3", ["Line 1: a spreadsheet has rounded the code 4.00638E+12."]),
]


def test_lines_are_read_as_spreadsheets_write_them(page):
    texts = [text for text, _ in SHEETS + FAULTS]
    script = f"{module('delivery.js')}; {json.dumps(texts)}.map(tested.linesIn)"
    found = page.evaluate(script)
    for (text, lines), read in zip(SHEETS, found, strict=False):
        assert read["faults"] == [], text
        assert [[line["text"], line["units"]] for line in read["lines"]] == lines
    for (text, faults), read in zip(FAULTS, found[len(SHEETS) :], strict=True):
        assert len(read["faults"]) == len(faults), text
        for fault, words in zip(faults, read["faults"], strict=True):
            assert words.startswith(fault)


def receipts(desk, product_id, location_id=""):
    """Return the receipts of a product as pairs of units and a note, the first part first."""
    path = f"/api/products/{quote(product_id)}/adjustments?limit=100&locationId={location_id}"
    listed = desk.get(path)["adjustments"]
    return [(one["delta"], one["reference"]) for one in listed if one["reason"] == "RECEIPT"]


def row(page, product_id):
    return page.get_by_role("row").filter(has=page.get_by_text(product_id, exact=True))


def paste(page, text, kind="came"):
    if not page.get_by_label("Lines", exact=True).is_visible():
        page.get_by_text("Paste lines, or open a file").click()
    page.get_by_label("Lines", exact=True).fill(text)
    page.get_by_label("These units").select_option(kind)
    page.get_by_role("button", name="Add lines").click()


def begin(page, desk, note, lines):
    show(page, desk, "receive", TITLE)
    page.get_by_label("Delivery note").fill(note)
    paste(page, lines)
    said(page, "added.")


def test_twelve_lines_are_received_on_a_phone_with_few_taps_and_scans(page, desk):
    products = [product.product_id for product in catalogue()][:12]
    codes = [{"code": GTIN}, {"code": CASE, "units": 12}]
    desk.command("ManageProducts", action="change", productId=products[0], barcodes=codes)
    page.set_viewport_size(PHONE)
    show(page, desk, "products", "Products")
    before = len(desk.api.calls)
    page.get_by_role("link", name=TITLE).click()
    page.get_by_role("heading", level=1, name=TITLE, exact=True).wait_for()
    assert len(desk.api.calls) - before <= MOST_CALLS

    acts = 0

    def scanned(text, words):
        nonlocal acts
        scan(page, text, "Enter")
        acts += 1
        said(page, words)

    scan(page, "LS 4711/a,#", "Enter")
    acts += 1
    page.locator("[name=scanned]:focus").wait_for()
    # A case and a unit of one product are one line.
    scanned(f"(01){CASE}(10)L-7", "12 units.")
    scanned(f"]E0{GTIN}", "13 units.")
    for number, product_id in enumerate(products[1:]):
        scanned(product_id, "1 unit.")
        units = row(page, product_id).get_by_role("textbox")
        units.click()
        acts += 1
        units.fill(f"{20 + number}")
    # What has been scanned is still there after a reload.
    page.reload()
    row(page, products[1]).wait_for()
    assert row(page, products[1]).get_by_role("textbox").input_value() == "20"
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.get_by_role("button", name="Book 12 lines").click()
    acts += 1
    said(page, "Book 12 lines of LS 4711/a,#: 12 booked")
    assert acts <= MOST_ACTS
    assert receipts(desk, products[0]) == [(13, "LS 4711/a,#")]
    for number, product_id in enumerate(products[1:]):
        assert receipts(desk, product_id) == [(20 + number, "LS 4711/a,#")]
    _, receipt = desk.get(f"/api/products/{products[0]}/adjustments")["adjustments"]
    assert receipt["scanned"] == {products[0]: [f"(01){CASE}(10)L-7"]}
    assert accessibility.find(page) == []

    # More of a product is another part, and the next delivery begins empty.
    scan(page, GTIN, "Enter")
    page.get_by_text("Part 2 of this note").wait_for()
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "Book 1 line of LS 4711/a,#: 1 booked")
    assert receipts(desk, products[0]) == [(13, "LS 4711/a,#"), (1, "LS 4711/a,#")]
    page.get_by_role("button", name="Next delivery").click()
    page.locator("[name=note]:focus").wait_for()
    assert page.get_by_label("Delivery note").input_value() == ""
    assert page.get_by_role("row").count() == 0
    assert not page.get_by_role("status").get_by_text("booked").count()


def test_two_people_book_one_note_at_the_same_time_and_each_is_told(page, context, desk):
    other = context.new_page()
    other.goto(desk.address())
    begin(page, desk, "LS-1", f"{TEA};5\n{HOJICHA};7\n{DECAF};3")
    begin(other, desk, " ls-1", f"{DECAF};3\n{HOJICHA};8\n{TEA};5")
    # The first person's second line is on its way while the other one books all.
    held = []
    page.route(
        f"**/{HOJICHA}/adjustments",
        lambda route: (
            route.continue_() if held or route.request.method == "GET" else held.append(route)
        ),
    )
    page.get_by_role("button", name="Book 3 lines").click()
    said(page, "1 of 3 lines")
    try:
        other.get_by_role("button", name="Book 3 lines").click()
        said(other, "Book 3 lines of ls-1: 2 booked, 1 booked before")
    finally:
        held[0].continue_()  # otherwise, the page would not let itself be left
    said(page, "Book 3 lines of LS-1: 1 booked, 2 booked before")
    assert "Booked before. 8 by you, Jan 15" in row(page, HOJICHA).inner_text()
    for product_id, units in ((TEA, 5), (HOJICHA, 8), (DECAF, 3)):
        assert [units for units, _ in receipts(desk, product_id)] == [units]
    other.close()


def test_a_note_that_is_booked_says_what_was_and_takes_nothing_or_a_second_part(page, desk):
    begin(page, desk, "LS-1", f"{TEA};5\n{HOJICHA};7")
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, ": 2 booked")
    page.get_by_role("button", name="Next delivery").click()
    begin(page, desk, "ls-1 ", f"{TEA};6\n{HOJICHA};7\n{DECAF};1")
    page.get_by_role("button", name="Book 3 lines").click()
    said(page, ": 1 booked, 2 booked before")
    said(page, "2 lines of ls-1 were booked before, and not again. Did more goods come", "alert")
    assert "Booked before. 5 by you, Jan 15" in row(page, TEA).inner_text()

    # One line came on top, and the other one did not.
    page.get_by_role("button", name="Book Earl Grey as a second part").click()
    page.get_by_role("button", name="No, nothing more").click()
    page.get_by_role("textbox", name="Units of Earl Grey received").fill("2")
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "Book 1 line of ls-1: 1 booked")
    states = row(page, TEA).inner_text()
    assert states.index("Booked before. 5 by you") < states.index("Part 2 of this note. Booked")
    assert [units for units, _ in receipts(desk, TEA)] == [5, 2]
    assert [units for units, _ in receipts(desk, HOJICHA)] == [7]
    assert [units for units, _ in receipts(desk, DECAF)] == [1]


def test_a_booking_whose_answer_is_lost_goes_on_after_a_reload(page, desk):
    for product_id in (TEA, HOJICHA):
        there = {"productId": product_id, "locationId": "berlin", "openingStock": 0}
        desk.command("ManageProducts", action="create", **there)
    begin(page, desk, "LS-3", f"{TEA};5\n{HOJICHA};7")
    page.get_by_label("Place").fill("berlin ")

    def lose(route):
        route.fetch()
        route.abort("aborted")

    page.route(f"**/{TEA}/adjustments", lose, times=1)
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, "Book 2 lines of LS-3 failed: 1 booked, 1 not booked: see its row", "alert")
    page.reload()
    row(page, TEA).get_by_text("Not answered yet").wait_for()
    for label in ("Delivery note", "Units of Earl Grey received"):
        assert page.get_by_label(label).get_attribute("readonly") is not None
    page.get_by_role("button", name="Book 1 line").click()
    said(page, "Book 1 line of LS-3: 1 booked")
    row(page, TEA).get_by_text("Booked", exact=True).wait_for()
    assert receipts(desk, TEA, "berlin") == [(5, "LS-3")]
    assert receipts(desk, HOJICHA, "berlin") == [(7, "LS-3")]


def test_a_booking_goes_on_while_its_reader_is_on_another_page(page, desk):
    begin(page, desk, "LS-4", f"{TEA};5\n{HOJICHA};7")
    held = []

    def hold(route):
        held.append(route)

    page.route(f"**/{TEA}/adjustments", hold, times=1)
    page.get_by_role("button", name="Book 2 lines").click()
    said(page, "0 of 2 lines")
    try:
        page.get_by_role("button", name="Book 2 lines").click()
        said(page, "Pressing again does not repeat it")
        assert page.get_by_role("button", name="Next delivery").is_disabled()
        show(page, desk, "products", "Products")
    finally:
        held[0].continue_()
    said(page, "Book 2 lines of LS-4: 2 booked")
    show(page, desk, "receive", TITLE)
    page.reload()
    for product_id in (TEA, HOJICHA):
        row(page, product_id).get_by_text("Booked", exact=True).wait_for()
        assert len(receipts(desk, product_id)) == 1


def test_codes_that_are_unknown_and_lines_that_fail_cost_the_others_nothing(page, desk):
    desk.sell("o-1")
    begin(page, desk, "LS-2", f"{TEA};5\n{DECAF};1\n{GTIN};2\n4006381333932;1\no-1;1\n{PRICED};1")
    said(page, "2 lines added. 4 not recognised")
    paste(page, f"https://id.example/01/{'7' * 80};1")
    said(page, "0 lines added. 1 not recognised")
    before = page.viewport_size
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    page.set_viewport_size(before)
    assert page.get_by_role("link", name="Search for item 12345").is_visible()
    page.get_by_text("o-1 (received: 1): this is an order, not a product").wait_for()
    page.get_by_text("the check digit of 4006381333932 is wrong; scan it again").wait_for()
    page.get_by_text(f"{GTIN} (received: 2): no product or order has this code").wait_for()
    desk.command("ManageProducts", action="change", productId=HOJICHA, barcodes=[{"code": GTIN}])
    page.get_by_role("button", name=f"Try again {GTIN}").click()
    row(page, HOJICHA).wait_for()
    paste(page, f"{HOJICHA};999999")
    page.get_by_role("button", name="Book 3 lines").click()
    said(page, "Enter the units of Hojicha: a whole number up to 1,000,000.", "alert")
    page.get_by_role("textbox", name="Units of Hojicha received").fill("2")
    page.get_by_role("button", name="Remove o-1").click()
    page.get_by_role("button", name="Remove 4006381333932").click()
    page.get_by_role("button", name=f"Remove {PRICED}").click()

    paste(page, f"product,announced\n{TEA},5\n{GTIN},3\ntea-oolong-milk,4", "announced")
    said(page, "3 lines added.")
    said(page, "3 products differ from what was announced.")
    assert row(page, HOJICHA).locator("td.amount").all_inner_texts()[1:] == ["3", "-1"]

    # Between the look-up and the booking, a product was delisted.
    product = desk.stock(DECAF)
    page.get_by_role("button", name="Remove Earl Grey Decaf").wait_for()
    desk.command("ManageProducts", action="delist", productId=DECAF, createdAt=product["createdAt"])
    page.get_by_role("button", name="Book 3 lines").click()
    said(page, "Book 3 lines of LS-2 failed: 2 booked, 1 not booked: see its row", "alert")
    row(page, DECAF).get_by_text("the product is not listed at this place").wait_for()
    assert [units for units, _ in receipts(desk, HOJICHA)] == [2]
    page.emulate_media(media="print")
    assert row(page, HOJICHA).is_visible()
    assert not page.locator("[name=scanned]").is_visible()
    assert "Delivery note LS-2, the default location" in page.locator("#about").inner_text()
