"""Products at the desk of an in-memory tea shop, in a browser: the list, and one product with its history."""

from inventory_orders.errors import Outcome
from inventory_orders.store.tables import Table
from operations.currency import NONE, Currency
from tests.support.desk import TEA, card, desk_for, said, show
from tests.support.movements import record_movements
from tests.support.pages import module

DECAF = "tea-earl-grey-decaf"
ANNA = "arn:aws:sts::123456789012:assumed-role/Admin/anna@example.com"
PHONE = {"width": 390, "height": 844}
GTIN, CASE, TAKEN = "4006381333931", "14006381333938", "5901234123457"


def change(desk, product_id=TEA, **changes):
    desk.command("ManageProducts", action="change", productId=product_id, **changes)


def names(page):
    """Return the names of the listed products, in the order shown, and the text of the last row."""
    return [text.splitlines()[0].strip() for text in page.locator("tbody tr").all_inner_texts()]


def numbers(page, at=0):
    """Return the units on hand, committed and available."""
    return [int(text) for text in page.locator(".stock").nth(at).locator("dd").all_inner_texts()]


def history(page):
    """Return the rows of the history: what happened, who did it, and the changes of both stock levels."""
    rows = page.get_by_role("table", name="History").locator("tbody tr").all()
    return [[cell.inner_text() for cell in row.locator("td").all()[1:]] for row in rows]


def test_products_are_filtered_sorted_summed_and_followed(page, desk):
    change(desk, TEA, backorderLimit=9)
    desk.sell("o-1", (TEA, desk.shop.stock(TEA) + 2))
    change(desk, DECAF, lowStockThreshold=1000)
    show(page, desk, "products", "Products")
    # Products that need attention come first. This one has more units promised than are in stock.
    tea = page.locator("tbody tr").first
    assert names(page)[:3] == ["Earl Grey", "Earl Grey Decaf", "Assam Breakfast"]
    assert tea.inner_text().split("\n")[1].startswith(TEA)
    assert tea.locator("svg rect").evaluate_all("all => all.map((one) => one.classList[0])") == [
        *("committed", "short", "available"),
    ]
    assert tea.get_by_role("img").get_attribute("aria-label").startswith("Committed ")
    assert page.locator("tbody tr").last.inner_text().split() == [
        *("Total", "of", "40", "products", "31,820", "62", "31,758"),
        *("31,760", "left", "to", "sell"),
    ]

    page.get_by_role("button", name="Available").click()
    page.locator("[aria-sort=descending]").wait_for()
    page.get_by_role("button", name="Available").click()
    assert names(page)[0] == "Earl Grey"
    page.get_by_role("button", name="Price").click()
    assert names(page)[0] == "First Flush 2026, limited drop"
    page.get_by_label("Filter by name or id").fill("EARL GREY")
    said(page, "2 of 40 products")
    assert names(page) == ["Earl Grey Decaf", "Earl Grey", "Total of 2 products"]

    # Events move no row, even if the product no longer matches the filter.
    page.get_by_label("Show").select_option("low")
    assert names(page) == ["Earl Grey Decaf", "Earl Grey", "Total of 2 products"]
    change(desk, DECAF, lowStockThreshold=0)
    desk.command(
        "ManageProducts", action="create", productId="mug", openingStock=0, name="Earl Grey mug"
    )
    change(desk, "mug", backorderLimit=5, lowStockThreshold=1)
    desk.happens(productId="mug")
    page.get_by_role("link", name="Earl Grey mug", exact=True).wait_for()
    assert names(page) == ["Earl Grey Decaf", "Earl Grey", "Earl Grey mug", "Total of 3 products"]
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("Total of 2 products").wait_for()

    page.get_by_label("Filter by name or id").fill("coffee")
    page.get_by_text("No product has “coffee” in its name or id and is low.").wait_for()
    page.get_by_role("button", name="Show all products").click()
    page.locator("#filter:focus").wait_for()
    said(page, "41 products")
    assert page.get_by_label("Show").input_value() == ""
    # A number on another page links to its list.
    show(page, desk, "products/PROMISED", "Products")
    page.get_by_text("Total of 1 product").wait_for()
    assert names(page) == ["Earl Grey", "Total of 1 product"]

    # On a phone, there are no headings to sort by.
    page.set_viewport_size(PHONE)
    show(page, desk, "products", "Products")
    page.get_by_label("Sort by").select_option("Price ↑")
    assert names(page)[1] == "Peppermint"
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_a_long_list_and_history_are_shown_in_part(page, desk):
    desk.api.most = 15
    for place in ("berlin", "munich"):
        there = {"productId": "tea-yunnan-gold", "locationId": place, "openingStock": 5}
        desk.command("ManageProducts", action="create", **there, lowStockThreshold=9)
    desk.shop.edit(Table.PRODUCTS, "tea-assam-breakfast", stockCount={"S": "many"})
    show(page, desk, "products", "Products")
    said(page, "16 products. There are more: the search finds them")
    page.get_by_text("cannot be read: tea-assam-breakfast").wait_for()
    # While not all is read, a level stands for itself.
    there = [f"Yunnan Gold at {place}" for place in ("berlin", "munich")]
    assert names(page)[:3] == [*there, "Ceylon Highland"]
    page.get_by_role("button", name="Show more").click()
    said(page, "31 products. There are more")
    page.get_by_role("button", name="Show more").click()
    page.get_by_text("Total of 39 products").wait_for()
    assert page.get_by_role("button", name="Show more").count() == 0
    page.get_by_role("button", name="3 locations of tea-yunnan-gold").wait_for()

    desk.api.most = 100
    for number in range(30):
        desk.place(f"o-{number}", (TEA, 1))
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_text("Orders are not listed yet, or not recorded on this stage").wait_for()
    assert [what for what, *_ in history(page)] == ["Opening stock"]
    record_movements(desk.shop)
    page.reload()
    page.get_by_text("Newest first. Orders are listed up to").wait_for()
    assert [what for what, *_ in history(page)] == [
        f"Placed by order o-{number}" for number in range(29, 4, -1)
    ]
    page.get_by_role("button", name="Show more").click()
    page.get_by_role("table").get_by_text("Opening stock").wait_for()
    assert len(history(page)) == 31
    assert page.get_by_role("button", name="Show more").count() == 0


def test_goods_come_in_and_the_history_says_in_words_what_happened(page, desk):
    before = desk.shop.stock(TEA)
    desk.sell("o-1")
    receipt = {"adjustmentId": "r-1", "productId": TEA, "delta": 40, "reason": "RECEIPT"}
    desk.command("AdjustStock", action="adjust", **receipt, actor=ANNA, reference="note 17")
    record_movements(desk.shop)
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_role("table").get_by_text("Opening stock").wait_for()
    stock = before + 37
    assert history(page) == [
        ["Received, note 17", "anna@example.com", "+40", "+40"],
        ["Placed by order o-1", "", "", "-3"],
        ["Opening stock", "", f"+{before}", f"+{before}"],
    ]
    assert page.get_by_role("link", name="Watch it sell").get_attribute("href") == f"#/drop/{TEA}"

    page.get_by_label("Units that came in").fill("5")
    page.keyboard.press("Enter")
    said(page, f"Receive 5 {TEA}: done")
    assert numbers(page) == [stock + 8, 3, stock + 5]
    page.get_by_role("table").get_by_text("Received", exact=True).wait_for()

    # Changes by others show in the numbers at once, and in the rows on request.
    desk.sell("o-2", (TEA, 2))
    desk.happens(productId="another")
    desk.happens(productId=TEA)
    page.get_by_text("The stock has changed since.").wait_for()
    assert numbers(page) == [stock + 8, 5, stock + 3]
    assert len(history(page)) == 4
    record_movements(desk.shop)
    page.get_by_role("button", name="Show newer changes").click()
    page.get_by_role("link", name="o-2").wait_for()

    # A loss removes units, but not more than there are.
    units = page.get_by_label("Units, such as -2 or 5")
    page.locator("[name=reason]").select_option("Loss")
    units.fill("2")
    page.keyboard.press("Enter")
    said(page, "Loss reduces the stock, so enter -2", "alert")
    page.get_by_role("link", name="Orders for this product").click()
    page.get_by_role("heading", level=1, name=f"Orders for {TEA}").wait_for()
    page.get_by_text("Newest first, complete up to").wait_for()
    page.get_by_text("2 orders.").wait_for()
    page.get_by_role("link", name="o-1").click()
    page.get_by_role("heading", level=1, name="Order o-1").wait_for()


def test_a_refusal_marks_its_field(page, desk):
    show(page, desk, f"product/{TEA}", "Earl Grey")
    units = page.get_by_label("Units, such as -2 or 5")
    units.fill("-1000")
    page.get_by_role("button", name="Correct").click()
    said(page, "(BELOW_FLOOR)", "alert")
    assert units.get_attribute("aria-invalid") == "true"


def test_a_product_is_listed_changed_and_taken_off_sale(page, desk):
    show(page, desk, "products", "Products")
    page.get_by_text("List a new product").click()
    for product_id, outcome, role in (
        (TEA, "(PRODUCT_EXISTS)", "alert"),
        ("mug", "done", "status"),
    ):
        page.get_by_label("Product id").fill(product_id)
        page.get_by_label("Price (optional)").fill("12.5")
        page.get_by_label("Opening stock").fill("5")
        page.keyboard.press("Enter")
        said(page, outcome, role)
    page.get_by_role("link", name="mug").click()
    page.get_by_text("mug · €12.50 · listed").wait_for()

    # Another desk changes the other limit and the name.
    change(desk, "mug", backorderLimit=100, name="Mug")
    card(page, "Limits").get_by_label("Low at").fill("9")
    page.get_by_role("button", name="Save limits").click()
    said(page, "Change mug: warns at 9 available units")
    page.locator(".level").get_by_text("low").wait_for()
    page.get_by_label("Price").fill("9.99")
    page.keyboard.press("Enter")
    page.get_by_text("mug · €9.99 · listed").wait_for()
    said(page, "Change mug: it costs €9.99")
    mug = desk.shop.row("mug")
    limits = mug["lowStockThreshold"], mug["backorderLimit"], mug["name"], mug["price"]
    assert limits == ({"N": "9"}, {"N": "100"}, {"S": "Mug"}, {"N": "999"})
    # Barcodes are refused at their field, and stay as they are while other details change.
    change(desk, TEA, barcodes=[{"code": TAKEN}])
    barcodes = page.get_by_label("Barcodes")
    for typed, why in (
        ("4006381333931*x", "cannot be read as a barcode"),
        ("4006381333932", "the check digit of 4006381333932 is wrong; correct the code"),
        (TAKEN, f"is a barcode of {TEA}; remove it there first"),
    ):
        barcodes.fill(typed)
        page.get_by_role("button", name="Save details").click()
        said(page, why, "alert")
        assert barcodes.get_attribute("aria-invalid") == "true"
    barcodes.fill(f" {GTIN}  {CASE}*12 ")
    page.keyboard.press("Enter")
    said(page, "Change mug: it has 2 barcodes")
    assert {*barcodes.input_value().split()} == {f"0{GTIN}", f"{CASE}*12"}
    page.get_by_label("Name").fill("Big mug")
    page.keyboard.press("Enter")
    said(page, "Change mug: it is called Big mug")
    assert {*desk.shop.row("mug")["barcodes"]["SS"]} == {f"0{GTIN}", f"{CASE}*12"}
    # Someone else adds one. The page says so, and a second save replaces what it has said.
    change(desk, "mug", barcodes=[{"code": GTIN}, {"code": CASE, "units": 12}, {"code": "A-1"}])
    barcodes.fill("B-1")
    page.keyboard.press("Enter")
    said(page, f"mug has other ones by now (0{GTIN}, {CASE}*12, A-1); correct yours", "alert")
    assert barcodes.input_value() == "B-1"
    barcodes.fill("")
    page.keyboard.press("Enter")
    said(page, "Change mug: it has no barcodes")

    desk.place("o-1", ("mug", 2))
    dialog = page.get_by_role("dialog", name="Are you sure?")
    discontinue = page.get_by_role("button", name="Discontinue")
    discontinue.click()
    dialog.get_by_text("Units promised to open orders: 2.").wait_for()
    page.keyboard.press("Escape")
    assert desk.shop.row("mug")["status"] == {"S": "LOW_STOCK"}
    discontinue.click()
    dialog.get_by_role("button", name="Discontinue").click()
    page.get_by_role("button", name="List again").click()
    discontinue.wait_for()
    assert desk.shop.row("mug")["status"] == {"S": "LOW_STOCK"}
    desk.command("ChangeOrders", action="cancel", orderId="o-1")
    page.get_by_role("button", name="Delist").click()
    dialog.get_by_text("No units are promised to open orders.").wait_for()
    dialog.get_by_role("button", name="Delist").click()
    said(page, "Delist mug: done")
    card(page, "On sale?").get_by_role("link", name="Products").click()
    page.get_by_role("heading", level=1, name="Products").wait_for()
    assert page.get_by_role("link", name="mug").count() == 0


# What is typed, and the minor units that it means: none, if it cannot be read as a price.
PRICES = {
    Currency("JPY", 0): ("¥1,200", {"1,250": 1250, "3000000": 3_000_000, "12.5": None, "1.200": None}),
    Currency("KWD", 3): ("KWD 1.200", {"0,75": 750, "1,250.5": 1_250_500, "1.2505": None, "1,250": None}),
    # Chromium gives the forint no decimals.
    Currency("HUF", 2): (
        "HUF 12.00",
        {"12,50": 1250, "1,250": 125_000, "1.250": None, "1,2,3": None, "-1": None, "10000000.01": None},
    ),
    NONE: ("1,200", {"1250": 1250, "12.50": None}),
}  # fmt: skip
READ_PRICES = r"""
([currency, typed]) => {
  const { useCurrency, price, priceFault, typedPrice, unitsOf } = tested;
  useCurrency(currency);
  const read = typed.map((text) => [text, priceFault(text) ? null : unitsOf(text)]);
  return [price(1200).replace("\u00a0", " "), unitsOf(typedPrice(1200)), Object.fromEntries(read)];
}
"""


def test_prices_are_shown_and_read_with_the_decimals_of_the_currency(page):
    page.evaluate(f"{module('format.js')}; globalThis.tested = tested")
    for currency, (shown, typed) in PRICES.items():
        found = page.evaluate(READ_PRICES, [currency._asdict(), list(typed)])
        assert found == [shown, 1200, typed], currency


def begin_to_count(page, desk):
    show(page, desk, f"product/{TEA}", "Earl Grey")
    page.get_by_role("button", name="Begin to count").press("Enter")
    said(page, f"Count {TEA}: begun")


def test_a_count_on_a_phone_goes_on_after_a_reload_until_it_is_booked(page):
    page.set_viewport_size(PHONE)
    with desk_for(page) as desk:
        there = desk.shop.stock(TEA)
        desk.sell("o-1")
        desk.sell("o-2")
        begin_to_count(page, desk)
        page.locator("[name=counted]:focus").wait_for()
        page.reload()
        page.get_by_text("including units promised to open orders").wait_for()
        assert numbers(page, 1) == [there, 6, there - 6]
        # A parcel leaves, and more units are promised than were counted.
        desk.command("ChangeOrders", action="fulfil", orderId="o-1")
        counted = page.get_by_label("Units on the shelf")
        counted.fill("4")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_text(f"The books expect {there:,}.").wait_for()
        page.get_by_role("button", name="Yes, that is right").click()
        said(page, "open orders hold 2 units more", "alert")
        assert counted.get_attribute("aria-invalid") == "true"
        counted.fill(str(there + 5))
        page.keyboard.press("Enter")
        said(page, f"Book {there + 5} {TEA} as counted: corrected by +5")
        page.get_by_role("button", name="Begin to count").wait_for()
        assert desk.shop.stock(TEA) == there + 5 - 6
        page.get_by_role("table").get_by_text("Counted").wait_for()


def test_a_count_is_cancelled_and_one_that_took_too_long_books_nothing(page, desk):
    show(page, desk, f"product/{TEA}", "Earl Grey")
    acquire = {"action": "acquire", "productId": TEA, "seconds": 600, "outliveInvocation": True}
    assert desk.aws.invoke("CountStock", acquire | {"holder": "shelf-7"})["result"] == "ACQUIRED"
    # This page was read before the other count began.
    page.get_by_role("button", name="Begin to count").click()
    said(page, "LEASED", "alert")
    page.get_by_text("A count is open: shelf-7 began or extended it at").wait_for()
    page.get_by_role("button", name="Cancel the count").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("The person who is counting cannot").wait_for()
    dialog.get_by_role("button", name="Cancel the count").click()
    said(page, f"Cancel the count of {TEA}: nothing was booked")

    begin_to_count(page, desk)
    page.get_by_role("button", name="Cancel the count").click()
    said(page, f"Cancel the count of {TEA}: nothing was booked")
    page.get_by_role("button", name="Begin to count").click()
    page.get_by_label("Units on the shelf").fill("1")
    there = desk.shop.stock(TEA)
    desk.shop.clock.advance(601)
    desk.sell("o-1")
    page.get_by_role("button", name="Book the count").click()
    page.get_by_role("button", name="Yes, that is right").click()
    said(page, "nothing was booked, because the count took too long", "alert")
    page.get_by_role("button", name="Begin to count").wait_for()
    assert desk.shop.stock(TEA) == there - 3


def test_a_product_at_several_locations(page, desk):
    at_home = desk.shop.stock(TEA)
    show(page, desk, f"product/{TEA}", "Earl Grey")
    shown = page.locator("main")
    assert not shown.get_by_text("locations").or_(shown.get_by_text("Transfer")).count()

    # List the product at another location, and receive goods there, by keyboard.
    page.get_by_text("List it at another location").press("Enter")
    page.get_by_label("Location id").fill("berlin")
    card_of_listing = page.locator("details").filter(has_text="List it at another location")
    card_of_listing.get_by_label("Opening stock").fill("2")
    card_of_listing.get_by_label("Low at").fill("9")
    page.keyboard.press("Enter")
    said(page, f"List {TEA} at berlin: done, but orders that name no locations cannot buy {TEA}")
    assert not page.get_by_text("leaves this location out").count()
    page.get_by_role("link", name="berlin").press("Enter")
    page.get_by_role("heading", level=1, name="Earl Grey at berlin").wait_for()
    page.get_by_text("leaves this location out").wait_for()
    page.get_by_label("Units that came in").fill("18")
    page.keyboard.press("Enter")
    said(page, f"Receive 18 {TEA} at berlin: done")
    assert (desk.shop.stock(TEA), desk.shop.stock(f"{TEA}#berlin")) == (at_home, 20)

    # Transfer units at once, and see others that are on the way.
    transfer = card(page, "Transfer")
    transfer.get_by_label("Units to transfer").fill("5")
    page.keyboard.press("Enter")
    said(page, f"Transfer 5 {TEA} from berlin to the default location: done")
    page.get_by_role("table").get_by_text("Transferred to the default location").wait_for()
    sent = {"adjustmentId": "s-1", "delta": -2, "reason": "TRANSFER_OUT", "sentTo": ""}
    sent |= {"productId": TEA, "locationId": "berlin", "reference": "van-7"}
    desk.command("AdjustStock", action="adjust", **sent)
    page.get_by_role("button", name="Refresh").click()
    page.get_by_text("2 units from berlin to the default location, since").wait_for()
    assert page.get_by_role("link", name="van-7").is_visible()
    assert (desk.shop.stock(TEA), desk.shop.stock(f"{TEA}#berlin")) == (at_home + 5, 13)

    # Count at one location, and name the product at all of them.
    page.get_by_role("button", name="Begin to count").press("Enter")
    page.locator("[name=counted]:focus").wait_for()
    page.keyboard.type("10")
    page.keyboard.press("Enter")
    said(page, f"Book 10 {TEA} at berlin as counted: corrected by -3")
    page.get_by_label("Name").fill("Earl")
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Earl at berlin").wait_for()

    # The list shows the product once, with its total. A product that only berlin sells is not out of stock.
    for where in ({"openingStock": 0}, {"openingStock": 5, "locationId": "berlin"}):
        desk.command("ManageProducts", action="create", productId="mug", **where)
    desk.sell("o-1", {"productId": TEA, "locationId": "berlin", "quantity": 2})
    show(page, desk, "products", "Products")
    tea = page.get_by_role("row").filter(has=page.get_by_role("link", name="Earl", exact=True))
    total = [str(at_home + 5 + 10), "2", str(at_home + 5 + 8)]
    assert tea.locator("td").all_inner_texts()[3:6] == total
    page.get_by_label("Show").select_option("out of stock")
    page.get_by_text("No product is out of stock.").wait_for()
    page.get_by_label("Show").select_option("more units promised than on hand")
    page.get_by_text("No product has more units promised than on hand.").wait_for()
    page.get_by_label("Show").select_option("low")
    said(page, "1 of 41 products")
    assert tea.locator("td").last.inner_text().split("\n") == ["in stock", "low at berlin"]
    page.get_by_role("button", name=f"2 locations of {TEA}").press("Enter")
    berlin = page.get_by_role("row").filter(has=page.get_by_role("link", name="berlin"))
    left_out = "8\nnone for orders that name no location"
    assert berlin.locator("td").all_inner_texts()[3:6] == ["10", "2", left_out]
    assert "#" not in page.locator("body").inner_text()

    # Delist the product at one location. Its default location comes last.
    show(page, desk, f"product/{TEA}", "Earl")
    page.get_by_role("button", name="Begin to count").press("Enter")
    said(page, f"Count {TEA} at the default location: begun")
    page.get_by_text("delist it at its other locations first").wait_for()
    page.get_by_role("link", name="berlin").press("Enter")
    page.get_by_role("button", name="Delist").click()
    page.get_by_text("Units promised to open orders: 2.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Delist").click()
    said(page, f"Delist {TEA} at berlin: done")
    card(page, "On sale?").get_by_role("link", name="Earl").click()
    page.get_by_role("heading", level=1, name="Earl", exact=True).wait_for()
    assert page.get_by_text("At all locations").count() == 0


def test_limits_for_customers_are_set_shown_and_explained(page, desk):
    show(page, desk, f"product/{TEA}", "Earl Grey")
    limits = card(page, "Limits")
    limits.get_by_label("Backorders").fill("3")
    limits.get_by_label("Safety stock").fill("5")
    page.get_by_role("button", name="Save limits").click()
    said(page, "safetyStock: must be 0 while backorderLimit is not 0", "alert")
    assert limits.get_by_label("Safety stock").get_attribute("aria-invalid") == "true"
    limits.get_by_label("Backorders").fill("0")
    limits.get_by_label("Purchase limit").fill("2")
    limits.get_by_label("Products with the same limit").fill("drop")
    page.keyboard.press("Enter")
    said(
        page, "orders leave 5 units, each customer may buy 2 units, it counts towards the limit of"
    )
    page.get_by_text("Orders leave 5 of the available units as safety stock.").wait_for()
    page.get_by_text(
        "Each customer may buy at most 2, together with the other products of"
    ).wait_for()
    row = desk.shop.product(TEA)
    assert (row.safety_stock, row.purchase_limit, row.limit_group) == (5, 2, "drop")

    page.get_by_text("List it at another location").click()
    page.get_by_label("Location id").fill("berlin")
    page.keyboard.press("Enter")
    said(page, f"List {TEA} at berlin: done")
    there = desk.shop.product(f"{TEA}#berlin")
    assert (there.purchase_limit, there.limit_group, there.safety_stock) == (2, "drop", 0)

    desk.place("o-1", (TEA, 2))
    assert desk.shop.order("o-2", **{TEA: 2}) is Outcome.APPLIED, "another customer"
    lines = [{"productId": TEA, "quantity": 1}]
    order = {"orderId": "o-3", "userId": "u", "items": lines}
    assert desk.aws.invoke("PlaceOrders", order)["code"] == "PURCHASE_LIMIT"
    show(page, desk, "order/o-3", "Order o-3")
    page.get_by_text("at most 2 of these per customer (1 wanted, 2 bought before)").first.wait_for()
