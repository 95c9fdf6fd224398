"""Barcodes: what each scan means, and which codes a product has."""

import json
import sys

import pytest
from typer.testing import CliRunner

from inventory_orders.domain.barcode import all_written, written
from inventory_orders.domain.scan import read_scan
from inventory_orders.errors import InvalidMessageError
from inventory_orders.store.rows import decode
from inventory_orders.store.tables import Table
from local.commands import main
from operations import load as loading
from operations.audit import read_books
from operations.commands import books as book_commands
from operations.commands import reports
from operations.load import Done
from testing.schedules.in_turn.lanes import lend
from tests.support.http import WAIT, Api
from tests.support.movements import record_movements
from tests.support.shelf import Shelf, codes, findings

GS = "\x1d"

# What the catalogue of these tests lists, by product.
LISTED = {
    "pen": ["4006381333931", "14006381333938*12"],  # an EAN-13 and the ITF-14 of a case
    "gum": ["96385074"],  # an EAN-8
    "soap": ["036000291452"],  # a UPC-A
    "soda": ["04252614"],  # a UPC-E
    "cheese": ["2012345012349"],  # a code with a weight in it, of one piece
    "screw": ["=12345678", "BIN-7", "4711"],  # in-house numbers, one of which looks like an EAN-8
    "mug": ["00000001234565"],
    "jar": ["00012345000065"],
    "rice": ["=0104006381333948"],  # an in-house number that looks like an element string
}

# Sources of the forms:
#   [GS] GS1 General Specifications: symbology identifiers 5.1.3, element strings and FNC1 7.8, UPC-E 5.2, EAN add-ons 5.2,
#        variable measure 2.1.11, GTIN-14 2.3, AI definitions 3
#   [DL] GS1 Digital Link Standard: URI Syntax, chapter 4
#   [ISO] ISO/IEC 15424, symbology identifiers
#   [ZEB] Zebra DS and LI series Product Reference Guides: suffixes, AIM code id, UPC-E conversion, UPC-A preamble
#   [XL] Microsoft, "Keeping leading zeros and large numbers"
SCANS = [
    # Plain digits.
    ("4006381333931", "pen 1"),  # [GS] EAN-13
    ("04006381333931", "pen 1"),  # [GS] the same as GTIN-14
    ("4006381333931\r\n", "pen 1"),  # [ZEB] suffix CR LF
    ("4006381333931\t", "pen 1"),  # [ZEB] suffix Tab
    (" 4006381333931 ", "pen 1"),
    ("14006381333938", "pen 12"),  # [GS] ITF-14 of a case
    ("036000291452", "soap 1"),  # [GS] UPC-A
    ("0036000291452", "soap 1"),  # [ZEB] UPC-A sent as EAN-13, as by zxing
    ("00036000291452", "soap 1"),
    ("36000291452", "soap 1"),  # [XL] a leading zero lost; [ZEB] no preamble
    ("96385074", "gum 1"),  # [GS] EAN-8
    ("0000096385074", "gum 1"),  # [GS] EAN-8 extended to 13 digits
    ("00000096385074", "gum 1"),
    ("04252614", "soda 1"),  # [GS] UPC-E
    ("042100005264", "soda 1"),  # [ZEB] UPC-E converted to UPC-A
    ("0042100005264", "soda 1"),  # zxing: UPC-E expanded to 13 digits
    ("42100005264", "soda 1"),  # [XL]
    ("01234565", "AMBIGUOUS_BARCODE"),  # both an EAN-8 and a UPC-E
    # Wrong check digits.
    ("4006381333932", "BAD_CHECK_DIGIT"),
    ("036000291453", "BAD_CHECK_DIGIT"),
    ("96385075", "BAD_CHECK_DIGIT"),
    ("14006381333939", "BAD_CHECK_DIGIT"),
    ("010400638133393210L7", "BAD_CHECK_DIGIT"),
    # Valid, but of no product.
    ("5901234123457", "UNKNOWN_BARCODE"),
    ("24006381333935", "UNKNOWN_BARCODE"),  # another packaging level of the pen
    ("65833254", "UNKNOWN_BARCODE"),
    # Symbology identifiers: [ISO], [GS], [ZEB] "AIM code id".
    ("]E04006381333931", "pen 1"),
    ("]E0036000291452", "soap 1"),
    ("]E004252614", "soda 1"),
    ("]E496385074", "gum 1"),
    ("]E401234565", "mug 1"),  # the scanner says that it is an EAN-8
    ("]E001234565", "jar 1"),  # and here that it is a UPC-E
    ("]E3400638133393112", "pen 1"),  # [GS] two-digit add-on
    ("]E3400638133393112345", "pen 1"),  # [GS] five-digit add-on
    ("]I114006381333938", "pen 12"),
    ("]C0BIN-7", "screw 1"),
    ("]A0BIN-7", "screw 1"),
    # Element strings: [GS] 7.8.
    ("0104006381333931", "pen 1"),
    (f"]C10104006381333931{GS}", "pen 1"),
    ("]C1011400638133393810L7", "pen 12 lot=L7"),
    (f"]d2010400638133393110L7{GS}17261130", "pen 1 lot=L7 expiry=2026-11-30"),
    (f"{GS}010400638133393110L7{GS}21S-1", "pen 1 lot=L7 serial=S-1"),
    ("]Q3010400638133393117261100", "pen 1 expiry=2026-11-30"),  # day 00: the end of the month
    ("010400638133393117000000", "pen 1"),  # no date
    ("]e0010400638133393115270131", "pen 1 bestBefore=2027-01-31"),
    ("]J1010400638133393121a%b", "pen 1 serial=a%b"),
    ("]C10204006381333931" + "3724", "pen 24 count=24"),  # [GS] AI 02 and 37: contained items
    ("]C10214006381333938" + "3710", "pen 120 count=10"),  # ten cases
    ("]C100106141412345678908" + f"02140063813339383702{GS}10L7", "pen 24 count=2 lot=L7"),
    ("010400638133393130" + "6", "pen 6 count=6"),  # [GS] AI 30: count of items
    ("01040063813339313103000750", "pen 1"),  # [GS] AI 310n: net weight
    ("0104006381333931" + "10L7(A)", "pen 1 lot=L7(A)"),
    ("0104006381333948", "rice 1"),  # listed unchanged
    # Element strings in brackets, as printed below the code.
    ("(01)04006381333931", "pen 1"),
    ("(01) 04006381333931 (10) L7", "pen 1 lot=L7"),
    ("(01)04006381333931(10)L7(17)261130", "pen 1 lot=L7 expiry=2026-11-30"),
    (
        "]C1(01)04006381333931(10)L7",
        "pen 1 lot=L7",
    ),  # python-barcode and JsBarcode encode the brackets
    ("(01)04006381333931(10)L7(A)1", "pen 1 lot=L7(A)1"),
    ("(A)12", "UNKNOWN_BARCODE"),
    ("(01)04006381333931(30)", "UNKNOWN_BARCODE"),  # a count without digits
    # Digital Links: [DL].
    ("https://id.gs1.org/01/04006381333931", "pen 1"),
    ("https://id.gs1.org/01/4006381333931/", "pen 1"),
    (
        "https://example.com/shop/01/14006381333938/10/L7?17=261130",
        "pen 12 lot=L7 expiry=2026-11-30",
    ),
    ("https://example.com/01/04006381333931/?10=L7/", "pen 1 lot=L7/"),
    ("HTTPS://EXAMPLE.COM/01/04006381333931/21/S1", "pen 1 serial=S1"),
    ("https://example.com/01/04006381333931/10/L%2F7?utm=x", "pen 1 lot=L/7"),
    ("https://example.com/01/04006381333931?10=A+B", "pen 1 lot=A+B"),
    ("https://example.com/01/04006381333931?1=2&v=10&17=261130#10=x", "pen 1 expiry=2026-11-30"),
    ("]Q1https://id.gs1.org/01/04006381333931", "pen 1"),  # an ordinary QR code
    ("https://example.com/01/04006381333932", "BAD_CHECK_DIGIT"),
    ("https://example.com/pens", "UNKNOWN_BARCODE"),
    ("http://[pen]/01/04006381333931", "UNKNOWN_BARCODE"),
    ("https://example.com/01/04006381333931?10=" + "x" * 91, "UNKNOWN_BARCODE"),
    # A price or a weight in the code: [GS] 2.1.11.
    ("2012345012349", "cheese 1"),  # listed exactly
    ("2012345015005", "VARIABLE_MEASURE 12345"),
    ("0212345015001", "VARIABLE_MEASURE 12345"),
    ("212345015001", "VARIABLE_MEASURE 12345"),  # a UPC-A
    ("2912345015008", "VARIABLE_MEASURE 12345"),
    # In-house numbers.
    ("12345678", "screw 1"),
    ("4711", "screw 1"),
    ("bin-7", "UNKNOWN_BARCODE"),
    # A listed code, then a product, an order, a reference.
    ("pen", "pen 1"),
    ("o-1", "order o-1"),
    ("1Z-7", "order o-1"),
    ("00106141412345678908", "order o-1"),  # [GS] SSCC of a parcel, its number in the step
    ("]C100106141412345678908", "order o-1"),
    ("106141412345678908", "order o-1"),
]


@pytest.fixture
def api(shop):
    """Make the API of a shop that sells the listed products, and has shipped an order in two parcels."""
    api = Api(shop)
    for product_id, listed in LISTED.items():
        barcodes = [
            {"code": code, **({"units": int(units)} if units else {})}
            for code, _, units in (each.partition("*") for each in listed)
        ]
        body = {"productId": product_id, "openingStock": 9, "barcodes": barcodes}
        assert api("POST", "/products", body).status == 201
    order = {"orderId": "o-1", "userId": "u-7", "items": [{"productId": "pen", "quantity": 3}]}
    assert api("POST", "/orders", order, WAIT).status == 201
    assert api("POST", "/orders/o-1/confirm").status == 200
    for number, reference in enumerate(("1Z-7", "106141412345678908")):
        part = {"stepId": f"s-{number}", "items": [{"productId": "pen", "quantity": 1}]}
        assert api("POST", "/orders/o-1/fulfil", part | {"reference": reference}).status == 200
    record_movements(shop)
    return api


def meaning(api, scan, claims=None):
    """Describe in a few words what a scan means."""
    said = api("GET", "/barcodes", query={"scan": scan}, claims=claims)
    found = said.document
    if said.status != 200:
        return " ".join(filter(None, [found["code"], found.get("itemNumber")]))
    named = [f"{found['productId']} {found['units']}"] if "productId" in found else []
    named += [f"order {each}" for each in found.get("orderIds", ())]
    fields = ("count", "lot", "serial", "expiry", "bestBefore")
    return " ".join([*named, *(f"{name}={found[name]}" for name in fields if name in found)])


def test_each_scan_has_one_meaning(api):
    assert len(SCANS) >= 60
    assert {scan: meaning(api, scan) for scan, _ in SCANS} == dict(SCANS)


def test_plain_codes_are_read_without_importing_biip(monkeypatch):
    monkeypatch.setitem(sys.modules, "biip", None)
    assert read_scan("4006381333931").gtins == ["04006381333931"]
    assert read_scan("96385074").gtins == ["00000096385074"]
    assert read_scan("BIN-7").codes == ["BIN-7"]
    with pytest.raises(ImportError):
        read_scan("0104006381333931")


# ---------------------------------------------------------------------- who may scan what


def staff(grants, *places):
    return {"sub": "ann", "groups": grants, "places": " ".join(places)}


def test_callers_without_a_permission_for_orders_do_not_find_any(api):
    grants = {"buyers": ["products.read"], "pickers": ["products.read", "orders.read"]}
    roles = {"claim": "groups", "grants": grants, "locationsClaim": "places"}
    api.shop.restart(USER_ID_CLAIM="sub", ROLES=json.dumps(roles))
    for scan in ("o-1", "1Z-7"):
        assert meaning(api, scan, staff("pickers", "*")) == "order o-1"
        assert meaning(api, scan, staff("pickers", "(default)")) == "order o-1"
        assert meaning(api, scan, staff("pickers", "lyon")) == "UNKNOWN_BARCODE"
        assert meaning(api, scan, staff("buyers", "*")) == "UNKNOWN_BARCODE"
    assert meaning(api, "4006381333931", staff("buyers", "lyon")) == "pen 1"
    assert meaning(api, "4006381333931", {"sub": "u-7"}) == "NOT_PERMITTED"


@pytest.mark.parametrize("scan", [None, "", " \r\n", "1" * 1_001])
def test_a_scan_has_at_least_one_character(api, scan):
    said = api("GET", "/barcodes", query={} if scan is None else {"scan": scan})
    assert said.code == (400, "SCHEMA_VIOLATION")
    assert said.document["field"] == "scan"


def test_the_element_strings_of_a_code_are_shown_for_the_step(api):
    said = api("GET", "/barcodes", query={"scan": f"]d2010400638133393110L7{GS}21S-1"})
    assert said.document["elements"] == "(01)04006381333931(10)L7(21)S-1"
    assert said.document["code"] == "04006381333931"
    assert "elements" not in api("GET", "/barcodes", query={"scan": "]d20104006381333931"}).document


@pytest.mark.parametrize(
    ("scan", "reference"),
    [
        ("]C01Z-8\r\n", "1Z-8"),
        ("]C100206141412345678905", "206141412345678905"),  # an SSCC
        ("4006381333932", "4006381333932"),  # a tracking number that looks like a wrong EAN-13
        ("x" * 129, None),
    ],
)
def test_an_unknown_code_names_the_reference_that_finds_its_order(api, scan, reference):
    said = api("GET", "/barcodes", query={"scan": scan})
    assert said.status == 404
    assert said.document.get("reference") == reference
    if reference:
        part = {"stepId": "s-8", "items": [{"productId": "pen", "quantity": 1}]}
        assert api("POST", "/orders/o-1/fulfil", part | {"reference": reference}).status == 200
        record_movements(api.shop)
        assert meaning(api, scan) == "order o-1"


def test_a_search_finds_a_product_by_its_whole_barcode(api):
    def found(search):
        said = api("GET", "/products", query={"search": search}).document["products"]
        return [each["productId"] for each in said]

    assert found("4006381333931") == found("0104006381333931") == found("pen") == ["pen"]
    assert found("BIN-7") == ["screw"]
    assert found("400638133393") == []


# ---------------------------------------------------------------------- the barcodes of a product


def change(shop, action="change", product_id="p", codes=None, **fields):
    """Send a command about a product. Returns its result, or the code of the problem."""
    if codes is not None:
        fields["barcodes"] = [dict(zip(("code", "units"), each, strict=False)) for each in codes]
    said = shop.invoke("manage_products", {"action": action, "productId": product_id, **fields})
    return said.get("code", said["result"])


def rows(shop):
    """Return the product and the units of each barcode."""
    found = map(decode, shop.items(Table.BARCODES).values())
    return {row["code"]: (row["productId"], row["units"]) for row in found}


PEN, CASE = ("4006381333931",), ("14006381333938", 12)


def test_a_product_has_exactly_the_barcodes_that_were_sent_last(shop):
    assert change(shop, "create", openingStock=1, codes=[PEN, CASE]) == "APPLIED"
    assert rows(shop) == {"04006381333931": ("p", 1), "14006381333938": ("p", 12)}
    assert shop.product("p").barcodes == {"04006381333931", "14006381333938*12"}
    # Both tables are written in one transaction.
    assert "PutItem" not in shop.calls
    written_before = dict(shop.items(Table.BARCODES))
    assert change(shop, codes=[("14006381333938", 12), ("04006381333931", 1)]) == "REPLAYED"
    assert change(shop, name="Pen") == "APPLIED"
    assert shop.items(Table.BARCODES) == written_before
    assert change(shop, codes=[(CASE[0], 10), ("=12345678",), ("A-1",)]) == "APPLIED"
    assert rows(shop) == {"14006381333938": ("p", 10), "12345678": ("p", 1), "A-1": ("p", 1)}
    said = shop.invoke("manage_products", {"action": "change", "productId": "p", "price": 5})
    assert said["barcodes"] == [
        {"code": "14006381333938", "units": 10},
        {"code": "=12345678", "units": 1},
        {"code": "A-1", "units": 1},
    ]
    # What an answer shows can be sent again.
    assert change(shop, barcodes=said["barcodes"]) == "REPLAYED"
    assert change(shop, codes=[]) == "APPLIED"
    assert rows(shop) == {}
    assert shop.product("p").barcodes == frozenset()


def test_a_code_belongs_to_one_product(shop):
    assert change(shop, "create", openingStock=1, codes=[PEN]) == "APPLIED"
    command = {"action": "create", "productId": "q", "openingStock": 1}
    said = shop.invoke("manage_products", command | {"barcodes": [{"code": "04006381333931"}]})
    assert (said["result"], said["code"]) == ("REFUSED", "BARCODE_TAKEN")
    assert "04006381333931 is a barcode of p" in said["message"]
    assert "q" not in shop.items(Table.PRODUCTS)
    shop.list("q")
    assert change(shop, product_id="q", codes=[("A-1",), PEN]) == "BARCODE_TAKEN"
    assert rows(shop) == {"04006381333931": ("p", 1)}
    assert change(shop, codes=[]) == "APPLIED"
    assert change(shop, product_id="q", codes=[PEN]) == "APPLIED"


def test_of_two_people_who_replace_barcodes_the_second_one_is_told(shop):
    assert change(shop, "create", openingStock=1, codes=[PEN]) == "APPLIED"
    seen = [{"code": PEN[0]}]
    assert change(shop, codes=[PEN, ("A-1",)], ifBarcodes=seen) == "APPLIED"
    assert change(shop, codes=[PEN, ("A-1",)], ifBarcodes=seen) == "REPLAYED"
    assert change(shop, codes=[PEN, ("B-1",)], ifBarcodes=seen, price=5) == "BARCODES_CHANGED"
    assert rows(shop) == {"04006381333931": ("p", 1), "A-1": ("p", 1)}
    assert shop.product("p").price is None
    assert change(shop, codes=[], ifBarcodes=[*seen, {"code": "A-1", "units": 1}]) == "APPLIED"
    assert change(shop, codes=[("B-1",)], ifBarcodes=[]) == "APPLIED"


def test_a_product_keeps_its_barcodes_until_it_is_delisted(shop):
    assert change(shop, "create", openingStock=1, codes=[PEN]) == "APPLIED"
    before = rows(shop)
    for action in ("discontinue", "listAgain"):
        assert change(shop, action) == "APPLIED"
        assert rows(shop) == before
    assert change(shop, "delist", createdAt=shop.product("p").created_at) == "APPLIED"
    assert rows(shop) == {}
    assert change(shop, "create", openingStock=1) == "APPLIED"
    assert rows(shop) == {}, "another generation has barcodes of its own"


def test_all_locations_share_the_barcodes(shop):
    assert change(shop, "create", openingStock=1, codes=[PEN]) == "APPLIED"
    assert change(shop, "create", openingStock=1, locationId="berlin") == "APPLIED"
    assert change(shop, locationId="berlin", codes=[CASE]) == "SCHEMA_VIOLATION"
    refused = {"openingStock": 1, "locationId": "lyon", "codes": [CASE]}
    assert change(shop, "create", **refused) == "SCHEMA_VIOLATION"
    assert rows(shop) == {"04006381333931": ("p", 1)}


@pytest.mark.parametrize(
    ("codes", "problem"),
    [
        ([("4006381333932",)], "BAD_CHECK_DIGIT"),
        ([("12345678",)], "BAD_CHECK_DIGIT"),
        ([("01234565",)], "SCHEMA_VIOLATION"),  # an EAN-8 and a UPC-E
        ([("4006381333931", 1), ("04006381333931", 2)], "SCHEMA_VIOLATION"),
        ([("A B",)], "SCHEMA_VIOLATION"),
        ([("A*2",)], "SCHEMA_VIOLATION"),
        ([("",)], "SCHEMA_VIOLATION"),
        ([("=",)], "SCHEMA_VIOLATION"),
        ([("A", 0)], "SCHEMA_VIOLATION"),
        ([(f"A-{n}",) for n in range(21)], "SCHEMA_VIOLATION"),
    ],
)
def test_barcodes_that_no_scanner_can_read_are_refused(shop, codes, problem):
    shop.list("p")
    assert change(shop, codes=codes) == problem
    assert rows(shop) == {}


def test_a_barcode_is_written_in_one_way():
    assert written("036000291452") == written("36000291452") == written("=00036000291452")
    assert written("04252614") == "00042100005264"
    assert written("=04252614") == "=04252614"
    assert written("4711") == written("=4711") == "4711"
    assert written("4006381333931", 6) == "04006381333931*6"
    assert all_written([{"code": "4711"}, {"code": "4711", "units": 1}]) == {"4711"}
    with pytest.raises(InvalidMessageError, match="send =4006381333932"):
        written("4006381333932")


@pytest.mark.parametrize("last", "0123456789")
def test_a_upc_e_is_expanded_by_its_last_digit(last):
    """The table in GS1 General Specifications, "UPC-E barcode", for the digits 1 2 3 4 5 and a last one."""
    middle = {
        "0": "1200000345",
        "1": "1210000345",
        "2": "1220000345",
        "3": "1230000045",
        "4": "1234000005",
    }
    expanded = f"0{middle.get(last, f'123450000{last}')}"
    digits = [int(each) for each in expanded]
    check = -(3 * sum(digits[::2]) + sum(digits[1::2])) % 10
    assert f"00{expanded}{check}" in read_scan(f"012345{last}{check}").gtins


def test_a_product_in_many_lanes_is_delisted_with_all_its_barcodes(shop):
    """The transaction that reclaims the last units also deletes its codes."""
    shop.list("p", name="One two three four five six seven eight")
    assert change(shop, codes=[(f"A-{n}",) for n in range(20)]) == "APPLIED"
    lend(shop.store, "p", 100, dict.fromkeys(range(1, 91), 1))
    assert change(shop, "delist", createdAt=shop.product("p").created_at) == "APPLIED"
    assert rows(shop) == {}


def test_a_product_in_many_lanes_changes_all_at_once(shop):
    """The transaction that reclaims the last units has 24 words and 40 barcodes."""
    shop.list("aa-bb-cc-dd-ee-ff-gg-hh", name="One two three four five six seven eight")
    shop.list("q")
    changed = {"product_id": "aa-bb-cc-dd-ee-ff-gg-hh", "lowStockThreshold": 1_000_000}
    assert change(shop, product_id="q", codes=[PEN]) == "APPLIED"
    codes = [(f"A-{n}",) for n in range(20)]
    assert change(shop, product_id=changed["product_id"], codes=codes) == "APPLIED"
    lend(shop.store, "aa-bb-cc-dd-ee-ff-gg-hh", 100, dict.fromkeys(range(1, 91), 1))
    assert change(shop, **changed, codes=[PEN]) == "BARCODE_TAKEN"
    codes = [(f"B-{n}",) for n in range(20)]
    name = "Nine ten eleven twelve thirteen fourteen fifteen sixteen"
    assert change(shop, **changed, codes=codes, name=name) == "APPLIED"
    assert len(rows(shop)) == 21
    assert shop.product(changed["product_id"]).lent_to == frozenset()


# ---------------------------------------------------------------------- what was scanned


LOTS = {"pen": ["(01)04006381333931(10)L7", "(01)04006381333931(10)L8(21)S-1"]}


def test_a_step_and_an_adjustment_keep_what_was_scanned(api):
    part = {"stepId": "s-9", "items": [{"productId": "pen", "quantity": 1}], "scanned": LOTS}
    assert api("POST", "/orders/o-1/fulfil", part).status == 200
    # A repetition is the same command, whatever was scanned.
    del part["scanned"]
    assert api("POST", "/orders/o-1/fulfil", part).document["result"] == "REPLAYED"
    back = {"stepId": "r-1", "items": part["items"], "restock": True, "scanned": LOTS}
    assert api("POST", "/orders/o-1/returns", back).status == 200
    steps = api("GET", "/orders/o-1").document["steps"]
    assert [step.get("scanned") for step in steps] == [None, None, None, LOTS, LOTS]
    receipt = {"adjustmentId": "r-1", "delta": 5, "reason": "RECEIPT", "scanned": LOTS}
    assert api("POST", "/products/pen/adjustments", receipt).status == 200
    booked = api("GET", "/products/pen/adjustments").document["adjustments"]
    assert [each.get("scanned") for each in booked] == [None, LOTS]
    assert (
        api(
            "POST", "/products", {"productId": "pen", "locationId": "rome", "openingStock": 0}
        ).status
        == 201
    )
    moved = {"transferId": "t-1", "from": "", "to": "rome", "quantity": 1, "scanned": LOTS}
    assert api("POST", "/products/pen/transfers", moved).status == 200
    counted = {"action": "acquire", "productId": "pen", "locationId": "rome", "seconds": 60}
    lease = api("POST", "/counts", counted).document["lease"]
    count = {"action": "commit", "lease": lease, "counted": 1, "adjustmentId": "c-1"}
    said = api("POST", "/counts", count | {"scanned": {"gum": ["(10)L7"]}})
    assert said.code == (400, "SCHEMA_VIOLATION")
    assert api("POST", "/counts", count | {"scanned": LOTS}).status == 200
    there = api("GET", "/products/pen/adjustments", query={"locationId": "rome"}).document
    assert [each.get("scanned") for each in there["adjustments"]] == [LOTS, None, LOTS]
    # Movements and histories are made for reading, and do not have it.
    record_movements(api.shop)
    assert "scanned" not in json.dumps([*map(decode, api.shop.items(Table.MOVEMENTS).values())])
    assert api("GET", "/products/pen/history").status == 200


@pytest.mark.parametrize(
    ("scanned", "field"),
    [
        ({"gum": ["(10)L7"]}, "scanned"),
        ({}, "scanned"),
        ({"pen": []}, "scanned.pen"),
        ({"pen": ["(10)L7"] * 11}, "scanned.pen"),
        ({"pen": ["x" * 129]}, "scanned.pen[0]"),
    ],
)
def test_scans_are_of_the_products_of_the_command(api, scanned, field):
    part = {"stepId": "s-9", "items": [{"productId": "pen", "quantity": 1}], "scanned": scanned}
    said = api("POST", "/orders/o-1/fulfil", part)
    assert (*said.code, said.document["field"]) == (400, "SCHEMA_VIOLATION", field)
    receipt = {"adjustmentId": "r-1", "delta": 5, "reason": "RECEIPT", "scanned": scanned}
    said = api("POST", "/products/pen/adjustments", receipt)
    assert (*said.code, said.document["field"]) == (400, "SCHEMA_VIOLATION", field)


def test_scans_need_named_items(api):
    said = api("POST", "/orders/o-1/fulfil", {"scanned": LOTS})
    assert (*said.code, said.document["field"]) == (400, "SCHEMA_VIOLATION", "items")


# ---------------------------------------------------------------------- files, and the audit


@pytest.fixture
def shelf(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "_WORKERS", 1)
    return Shelf(shop, tmp_path / "catalogue.csv")


HEADER = "productId,openingStock,barcodes\n"


def test_a_file_gives_products_their_barcodes_and_a_second_time_changes_nothing(shelf):
    content = f"{HEADER}pen,5,4006381333931 14006381333938*12\nscrew,5,=12345678\nmug,5,\n"
    for load in shelf.check_and_load(content):
        assert (load.bad, load.done) == ([], {Done.CREATED: 3})
    assert rows(shelf.shop) == {
        "04006381333931": ("pen", 1),
        "14006381333938": ("pen", 12),
        "12345678": ("screw", 1),
    }
    assert shelf.load().done == {Done.THERE: 3}
    # An empty cell removes all barcodes, and frees them for lines below.
    content = "productId,barcodes\npen,\nmug,14006381333938*6\nscrew,=12345678 BIN-7\n"
    for load in shelf.check_and_load(content):
        assert load.done == {Done.CHANGED: 3}
        assert findings(load) == [
            (2, "pen", 'barcodes "04006381333931 14006381333938*12" removed'),
            (3, "mug", 'barcodes set to "14006381333938*6"'),
            (4, "screw", 'barcodes from "=12345678" to "=12345678 BIN-7"'),
        ]
    assert shelf.load().done == {Done.SAME: 3}
    shelf.load('{"productId": "pen", "barcodes": [{"code": "4006381333931", "units": 2}]}')
    assert rows(shelf.shop)["04006381333931"] == ("pen", 2)


def test_lines_with_wrong_or_foreign_barcodes_are_bad(shelf):
    shelf.load(f"{HEADER}pen,5,4006381333931\n")
    content = HEADER + (
        "mug,5,04006381333931\n"  # the pen's
        "cup,5,4006381333932\n"
        "pot,5,4.00638E+12\n"
        "jug,5,BIN-7\n"
        "can,5,BIN-7\n"
        "tin,5,A*0\n"
        "new,5,BIN-8\n"
    )
    for load in shelf.check_and_load(content):
        assert codes(load) == [
            (2, "mug", "BARCODE_TAKEN"),
            (3, "cup", "BAD_CHECK_DIGIT"),
            (4, "pot", "ROUNDED_CODE"),
            (5, "jug", "DUPLICATE_LINE"),
            (6, "can", "DUPLICATE_LINE"),
            (7, "tin", "SCHEMA_VIOLATION"),
        ]
        assert load.done == {Done.CREATED: 1}
    content = "productId,locationId,barcodes\nnew,berlin,BIN-9\n"
    assert codes(shelf.load(content)) == [(2, "new", "SCHEMA_VIOLATION")]


def test_the_audit_lists_barcodes_that_do_not_point_back(shop, monkeypatch):
    for product_id, codes_of in (("p", [PEN, CASE]), ("q", [("A-1",), ("A-2",)])):
        shop.list(product_id)
        assert change(shop, product_id=product_id, codes=codes_of) == "APPLIED"
    assert read_books(shop.stack).barcodes == []
    table = shop.items(Table.BARCODES)
    table["A-9",] = {**table["A-1",], "code": {"S": "A-9"}}
    del table["04006381333931",]
    table["14006381333938",] |= {"units": {"N": "10"}}
    table["A-2",] |= {"productCreatedAt": {"S": "2026-01-01T00:00:00.000000+00:00"}}
    books = read_books(shop.stack)
    p, q = (shop.product(each).created_at for each in "pq")
    old = "2026-01-01T00:00:00.000000+00:00"
    assert books.barcodes == [
        f"04006381333931 finds no product, but is a barcode of p (1 unit, created {p})",
        f"14006381333938 finds p (10 units, created {p}), but is a barcode of p (12 units, created {p})",
        f"A-2 finds q (1 unit, created {old}), but is a barcode of q (1 unit, created {q})",
        f"A-9 finds q (1 unit, created {q}), but is a barcode of no product",
    ]
    monkeypatch.setattr(book_commands, "aws_of", lambda *_: shop.stack)
    run = CliRunner().invoke(main.app, ["audit"])
    assert run.exit_code == 1
    assert "A-9 finds q" in run.stdout
    # The product's own command repairs them.
    for codes_of in ([], [("A-9",)], [("A-1",), ("A-2",)]):
        assert change(shop, product_id="q", codes=codes_of) == "APPLIED"
    for codes_of in ([], [PEN, CASE]):
        assert change(shop, codes=codes_of) == "APPLIED"
    assert read_books(shop.stack).barcodes == []


def test_the_command_for_stock_takes_a_barcode(shop, monkeypatch):
    shop.list("p")
    assert change(shop, codes=[PEN]) == "APPLIED"
    monkeypatch.setattr(reports, "aws_of", lambda *_: shop.stack)
    for text in ("p", "4006381333931", "(01)04006381333931"):
        run = CliRunner().invoke(main.app, ["stock", text, "--json"])
        assert json.loads(run.stdout)["productId"] == "p"
    assert CliRunner().invoke(main.app, ["stock", "4006381333932"]).exit_code == 1
