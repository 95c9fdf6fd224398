"""Product files: what their lines mean, and the errors for bad lines."""

import csv
import gzip
import json
import os
import re

import pytest

from local import ROOT
from operations.catalogue_file import read_catalogue
from operations.cells import encoded_id
from operations.currency import NONE, Currency
from operations.errors import UserError
from operations.file_errors import FileError, by_kind, write_report

EURO, YEN, DINAR = Currency("EUR", 2), Currency("JPY", 0), Currency("KWD", 3)
SAVED = "2026-01-12T13:46:40.000000+00:00"


@pytest.fixture
def read(tmp_path):
    def read(content, name="catalogue.csv", currency=NONE, counted_at=None):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.utime(path, (1_768_225_600, 1_768_225_600))
        return read_catalogue(path, currency, counted_at)

    return read


def json_lines(*documents):
    return "\n".join(json.dumps(document) for document in documents)


def reasons(file):
    return [(bad.number, bad.code, bad.message) for bad in file.bad]


def codes(file):
    return [(bad.number, bad.ids.get("productId", ""), bad.code) for bad in file.bad]


def test_a_lines_default_ids_do_not_depend_on_its_position(read):
    """After one line is corrected, the other lines are booked under the same ids as before."""
    first = read("action,productId,delta,reason\nadjust,p,4x,RECEIPT\nadjust,q,4,RECEIPT\n")
    mended = read(
        "action,productId,delta,reason\nadjust,a,1,RECEIPT\nadjust,q,4,RECEIPT\nadjust,p,4,RECEIPT\n"
    )
    assert first.adjustments[0].content == mended.adjustments[1].content
    assert len({line.content.adjustment_id for line in mended.adjustments}) == 3


def test_given_values_override_defaults(read):
    at, notes = "2026-01-01T00:00:00.000000+00:00", {"actor": "ann", "reference": "delivery 7"}
    booking = {"action": "adjust", "productId": "p", "delta": 1, "reason": "A", **notes}
    change = {"action": "changeDetails", "productId": "p", "details": {"name": "Tea"}}
    file = read(
        json_lines(booking | {"adjustmentId": "r-1"}, change | {"eventId": "e-1", "eventTime": at}),
        "f.jsonl",
    )
    table = read(
        "action,productId,delta,reason,actor,reference,adjustmentId,eventId,eventTime,name,price\n"
        "adjust,p,1,A,ann,delivery 7,r-1,,,,\n"
        f"changeDetails,p,,,,,,e-1,{at},Tea,\n"
    )
    for each in (file, table):
        assert each.bad == []
        event, adjustment = each.changes[0].content, each.adjustments[0].content
        assert (event.event_id, event.event_time) == ("e-1", at)
        assert event.details == {"name": "Tea", "price": None}
        assert (adjustment.adjustment_id, adjustment.notes) == ("r-1", notes)


def test_the_columns_determine_a_lines_action(read):
    for content, name in (
        ("productId,openingStock\np,1\n", "creations"),
        ("productId,delta,reason\np,1,RECEIPT\n", "adjustments"),
        (f"productId,counted,countedAt\np,1,{SAVED}\n", "counts"),
        ("productId,price\np,1\n", "changes"),
    ):
        assert [line.content.product_id for line in getattr(read(content), name)] == ["p"]
        assert read(content).good == 1


@pytest.mark.parametrize(
    ("header", "row", "details", "others"),
    [
        ("price", "690", {"price": 690}, {}),
        ("name,price", ",690", {"name": None, "price": 690}, {}),
        (
            "lowStockThreshold,backorderLimit",
            "5,",
            {},
            {"low_stock_threshold": 5, "backorder_limit": 0},
        ),
        ("name,lowStockThreshold", "Tea,", {"name": "Tea"}, {"low_stock_threshold": 0}),
        ("action,price,lowStockThreshold", "changeDetails,690,", {"price": 690}, {}),
        ("action,price", "discontinue,", {}, {"status": "DISCONTINUED"}),
        ("action", "listAgain", {}, {"status": "ACTIVE"}),
    ],
)
def test_a_missing_column_changes_nothing_and_an_empty_cell_removes(
    read, header, row, details, others
):
    table = read(f"productId,{header}\np,{row}\n")
    cells = dict(zip(header.split(","), row.split(","), strict=True))
    numbers = {name: int(cell) if cell.isdigit() else cell or None for name, cell in cells.items()}
    lines = read(json_lines({"productId": "p"} | numbers), "f.jsonl")
    for file in (table, lines):
        assert file.bad == []
        assert (file.changes[0].content.details, file.changes[0].content.others) == (
            details,
            others,
        )


def test_the_id_of_a_count_follows_from_file_name_product_units_and_time(read):
    def count(content, name="counts.csv", counted_at=SAVED):
        (line,) = read(content, name, counted_at=counted_at).counts
        return line.content

    first = count("productId,counted,reference\np,7,aisle 3\n")
    assert (first.counted, first.counted_at) == (7, SAVED)
    assert first.notes == {"reference": "aisle 3"}
    # The same count, saved in another format with the columns swapped and the time in a column, keeps its id.
    assert count("counted;productId;countedAt\n7;p;2026-01-12T14:46:40+01:00\n") == first
    others = [
        count("productId,counted\np,8\n"),
        count("productId,counted\nq,7\n"),
        count("productId,counted\np,7\n", "november.csv"),
        count("productId,counted\np,7\n", counted_at="2026-01-19T13:46:40Z"),
    ]
    assert len({each.adjustment_id for each in (first, *others)}) == 5
    assert count("productId,counted,adjustmentId\np,7,c-1\n").adjustment_id == "c-1"
    twice = read("productId,counted\np,7\np,2\n", counted_at=SAVED)
    assert reasons(twice) == [
        (
            line,
            "DUPLICATE_LINE",
            "lines 2 and 3 count p, so none of them was loaded; keep one or, if the units lie in several bins, write their sum in "
            "one line",
        )
        for line in (2, 3)
    ]
    assert twice.counts == []


def test_a_count_needs_the_time_when_it_began(read):
    file = read(
        f"productId,counted,countedAt\np,7,\nq,7,2999-01-01T00:00:00Z\nr,7,2026-01-12\ns,7,{SAVED}\n"
    )
    assert [line.content.product_id for line in file.counts] == ["s"]
    said = [message for _, _, message in reasons(file)]
    assert said[0].startswith(
        "countedAt: is missing; add a column countedAt or the option --counted-at"
    )
    assert (
        said[1] == "countedAt: 2999-01-01T00:00:00.000000+00:00 is in the future; correct the time"
    )
    assert said[2].startswith("countedAt: must be an RFC 3339 time with an offset, such as")


@pytest.mark.parametrize("code", ["8.964E+12", "8,964E+12", "9E+12", "8.964e+12"])
def test_a_code_that_a_spreadsheet_has_rounded_is_an_error_that_says_so(read, code):
    file = read(f'productId;openingStock\n"{code}";1\n"{code}";2\np;3\n')
    assert [line.content.product_id for line in file.creations] == ["p"]
    assert codes(file) == [(n, code, "ROUNDED_CODE") for n in (2, 3)]
    assert f"productId: a spreadsheet has rounded this code to {code}" in file.bad[0].message
    assert file.bad[0].message.endswith("import this column into the spreadsheet as text")
    receipts = read(f'productId;delta;reason;adjustmentId\np;1;A;"{code}"\n')
    assert receipts.bad[0].message.startswith("adjustmentId: a spreadsheet has rounded")


@pytest.mark.parametrize(
    ("code", "is_date"),
    [
        *((code, True) for code in ("1-Mar", "02-Jan", "Mar-25", "1-Mar-25", "01. Mrz", "3-déc.")),
        *((code, True) for code in ("2025-01-02", "02.01.2025", "1/31/2025 0:00", "02/01/25")),
        *(
            (code, False)
            for code in ("MAR1", "3-1", "10-DEC", "10-SET", "1-Mars-bar", "2025-13-41")
        ),
        *((code, False) for code in ("2025-01", "01012025", "4006381333931")),
    ],
)
def test_a_code_that_a_spreadsheet_made_a_date_is_an_error_that_says_so(read, code, is_date):
    file = read(f"productId,openingStock\n{code},1\nq,2\n")
    assert [line.content.product_id for line in file.creations] == [
        *([] if is_date else [code]),
        "q",
    ]
    assert codes(file) == [(2, code, "DATE_INSTEAD_OF_CODE")] * is_date
    for bad in file.bad:
        assert bad.message.startswith(
            f"productId: {code} is a date, probably because a spreadsheet"
        )
        assert (bad.column, bad.value) == ("productId", code)
    # Ids of receipts may be dates, and JSON does not come from a spreadsheet.
    assert not read("productId,delta,reason,adjustmentId\np,1,A,2025-01-02\n").bad
    lines = read('{"productId": "1-Mar", "openingStock": 1}', "f.jsonl")
    assert lines.creations[0].content.product_id == "1-Mar"


def test_a_value_that_is_refused_says_how_to_write_it(read):
    rows = {
        '"1e3",lyon,p': "delta: .*; write 1000",
        '"1E+03",lyon,p': "delta: .*; write 1000, unless a spreadsheet has rounded it",
        '"1,5E+03",lyon,p': "delta: .*; write 1500, unless a spreadsheet has rounded it",
        '"12.0",lyon,p': "delta: .*; write 12",
        '"+12",lyon,p': "delta: .*; write 12",
        '"1,000",lyon,p': "delta: .*; write it without separators or decimals",
        '"1 000",lyon,p': "delta: .*; write it without separators or decimals",
        '"2.5",lyon,p': 'delta: .* but is "2.5"',
        '"1e99",lyon,p': 'delta: .* but is "1e99"',
        '1,lyon,"Earl Grey, 50 %"': "productId: .*; write Earl~20Grey~2C~2050~20~25, in all files and messages",
        "1,lyon,#1001": "productId: .*; write ~231001, in all files and messages",
        f"1,lyon,{'x' * 65}": 'productId: .* but is "x*"',
        "1,Lyon Depot,p": "locationId: .*; write Lyon-Depot, in all files and messages",
    }
    file = read("delta,locationId,productId,reason\n" + "".join(f"{row},A\n" for row in rows))
    assert [bad.number for bad in file.bad] == list(range(2, 2 + len(rows)))
    for bad, said in zip(file.bad, rows.values(), strict=True):
        assert re.fullmatch(said, bad.message), bad.message
    assert file.bad[9].ids == {"productId": "Earl Grey, 50 %", "locationId": "lyon"}
    ((_, _, said),) = reasons(read("productId,counted\np,1e3\n", counted_at=SAVED))
    assert "units that were there when the count began, including" in said


def test_the_page_on_limits_has_the_encoding_of_ids():
    page = (ROOT / "docs/limits.md").read_text("utf-8")
    sku, written = re.search(r'sku = "(.*)"\n(?:.*\n)*?assert product_id == "(.*)"', page).groups()
    assert encoded_id(sku) == written
    assert encoded_id("a~b") == "a~7Eb"


@pytest.mark.parametrize("price", ["12.5", '"12,50"', "79.00", "$12.50", '"1,250.00"'])
def test_prices_in_an_unknown_unit_are_asked_about_before_anything_is_stored(read, price):
    with pytest.raises(
        UserError,
        match=r"line 3 has the price .*, but the stack has no currency, .*Add the setting",
    ):
        read(f"productId,price\np,79\nq,{price}\n")
    if "," not in price and "$" not in price:
        with pytest.raises(UserError, match=r"line 2 has the price .*the setting currency"):
            read(
                f'{{"productId": "p", "price": 79}}\n{{"productId": "q", "price": {price}}}\n',
                "f.jsonl",
            )


@pytest.mark.parametrize(
    ("currency", "prices", "minor_units"),
    [
        (EURO, ["79", "12.5", "12,50", "0", "0.05", ""], [7900, 1250, 1250, 0, 5, None]),
        (EURO, ["10000000.00"], [1_000_000_000]),
        (YEN, ["79", "1250"], [79, 1250]),
        (DINAR, ["1.5", "1.250", "0.500", "12.345"], [1500, 1250, 500, 12345]),
        (DINAR, ["1,250", "3,5"], [1250, 3500]),
    ],
)
def test_prices_have_the_decimals_of_the_currency(read, currency, prices, minor_units):
    rows = "".join(f'p-{n};"{price}"\n' for n, price in enumerate(prices))
    table = read(f"productId;price\n{rows}", currency=currency)
    assert [line.content.details["price"] for line in table.changes] == minor_units
    numbers = "\n".join(
        f'{{"productId": "p-{n}", "price": {price.replace(",", ".") or "null"}}}'
        for n, price in enumerate(prices)
    )
    lines = read(numbers, "f.jsonl", currency)
    assert [line.content.details["price"] for line in lines.changes] == minor_units


@pytest.mark.parametrize(
    ("currency", "bad", "limits"),
    [
        (
            EURO,
            ["12.505", "12 EUR", "-1", "10000000.01", "1e3"],
            "10000000.00 EUR, with at most 2 decimals",
        ),
        (YEN, ["12.5", "79.00", "2.500.000", "1000000001"], "1000000000 JPY, without decimals"),
        (DINAR, ["1.2505"], "1000000.000 KWD, with at most 3 decimals"),
    ],
)
def test_a_price_that_does_not_fit_its_currency_is_a_bad_line(read, currency, bad, limits):
    lines = [f"p{n},{price}" for n, price in enumerate([*bad, "5"])]
    file = read("\n".join(["productId,price", *lines]), currency=currency)
    assert [line.content.product_id for line in file.changes] == [f"p{len(bad)}"]
    why = f"price: must be a number from 0 to {limits} and without thousands separators, but is"
    assert reasons(file) == [
        (number, "SCHEMA_VIOLATION", f'{why} "{price}"') for number, price in enumerate(bad, 2)
    ]


@pytest.mark.parametrize("currency", [EURO, YEN, DINAR])
@pytest.mark.parametrize(
    ("first", "second", "could_be"),
    [
        ("1,250", "0.500", "1.250 or 1250"),
        ("12.345", "0,5", "12.345 or 12345"),
        ("1,250", "3.250", "1.250 or 1250"),
        ("1,250", "2,500,000", "1.250 or 1250"),
        ("1,250", "1,250.500", "1.250 or 1250"),
    ],
)
def test_a_file_whose_separators_may_mean_two_things_is_refused(
    read, currency, first, second, could_be
):
    says = rf"catalogue.csv has ambiguous prices: {first} in line {{}} could mean {could_be}, because line {{}} has {second}"
    with pytest.raises(UserError, match=says.format(2, 4)):
        read(f'productId;price\np;"{first}"\nx;5\nq;"{second}"\n', currency=currency)


def test_a_point_in_a_number_of_json_is_always_a_decimal_point(read):
    numbers = '{"productId": "p", "price": 1.250}\n{"productId": "q", "price": "0,5"}\n'
    file = read(numbers, "f.jsonl", DINAR)
    assert [line.content.details["price"] for line in file.changes] == [1250, 500]
    with pytest.raises(UserError, match="ambiguous prices: 1,250 in line 2 could mean"):
        read(numbers.replace("0,5", "1,250"), "f.jsonl", DINAR)


def test_bad_cells_are_named_in_the_words_of_the_handlers(read):
    file = read("productId,openingStock,price\np-3,-1,\np-4,,5\np-5,1,1e3\np-6,1,5\n")
    assert [line.content.product_id for line in file.creations] == ["p-6"]
    stock = "a whole number from 0 to 1,000,000,000"
    price = "a price in minor units of the currency: a whole number from 0 to 1,000,000,000"
    assert [message for _, _, message in reasons(file)] == [
        f"openingStock: must be {stock}, but is -1",
        f"openingStock: is missing in the line; it must be {stock}",
        f'price: must be {price}, but is "1e3"',
    ]


def test_a_bad_line_does_not_affect_its_neighbours(read):
    good = {"productId": "good", "openingStock": 1}
    file = read(
        "\n".join(
            [
                "{",
                json_lines(good),
                "[1]",
                '{"productId": "p", "openingStock": 1, "openingStock": 2}',
                '{"action": "delist", "productId": "p"}',
                '{"action": ["create"], "productId": "p"}',
                '{"action": "adjust", "productId": "p", "delta": 0, "reason": "A"}',
                '{"action": "changeDetails", "productId": "p", "details": {"colour": 1}}',
                '{"action": "changeDetails", "productId": "p", "details": {}, '
                '"eventTime": "2999-01-01T00:00:00.000000+00:00"}',
            ]
        ),
        "f.jsonl",
    )
    assert [line.content.product_id for line in file.creations] == ["good"]
    assert file.good == 1
    assert [bad.code for bad in file.bad] == [
        *("INVALID_JSON", "SCHEMA_VIOLATION", "INVALID_JSON"),
        *(*["UNSUPPORTED_ACTION"] * 2, *["SCHEMA_VIOLATION"] * 2),
        "EVENT_FROM_THE_FUTURE",
    ]
    assert "at column 2, at its end" in file.bad[0].message


def test_what_a_file_says_twice_is_reported(read):
    file = read(
        json_lines(
            {"productId": "p", "openingStock": 1},
            {"productId": "p", "openingStock": 1},
            {"action": "adjust", "productId": "p", "delta": 1, "reason": "A"},
            {"action": "adjust", "productId": "p", "delta": 1, "reason": "A"},
            {"action": "adjust", "adjustmentId": "r", "productId": "p", "delta": 1, "reason": "A"},
            {"action": "adjust", "adjustmentId": "r", "productId": "p", "delta": 2, "reason": "A"},
            {"action": "adjust", "adjustmentId": "r", "productId": "q", "delta": 2, "reason": "A"},
            {"action": "changeDetails", "productId": "p", "details": {}},
            {"action": "changeDetails", "productId": "p", "details": {"name": "N"}},
        ),
        "f.jsonl",
    )
    # Which of them is right is unknown, so none of them counts.
    assert sorted(codes(file)) == [(n, "p", "DUPLICATE_LINE") for n in (1, 2, 3, 4, 5, 6, 8, 9)]
    assert [line.number for line in (*file.creations, *file.adjustments, *file.changes)] == [7]
    said = {bad.number: bad.message for bad in file.bad}
    assert said[1] == said[2]
    assert said[1].startswith("lines 1 and 2 create p, so none of them was loaded; keep one or, if")
    assert said[3].startswith(
        "lines 3 and 4 adjust p by the same units for the same reason, so none of them was loaded; keep one or, if each of them "
        "happened, give each an adjustmentId"
    )
    assert said[6].startswith(
        "adjustmentId: lines 5 and 6 adjust p under the same adjustmentId, r, "
    )
    assert said[8].startswith("lines 8 and 9 change p at the same time, ")


def test_a_row_that_does_not_fit_its_header(read):
    file = read('productId,openingStock,name\np,1\nq,1,Tea, black\nr,1,"Tea,\nblack"\ns,1,Tea\n')
    assert codes(file) == [(2, "p", "BAD_ROW"), (3, "q", "BAD_ROW"), (4, "r", "SCHEMA_VIOLATION")]
    assert file.bad[0].message == (
        "the row has 2 cells, but the header has 3; write one for each column, with a comma between them, so that every value "
        "is in its own column"
    )
    assert file.bad[1].message == (
        "the row has 4 cells, but the header has 3; put quotation marks around a value that contains a comma, or remove the "
        "cells without a column"
    )
    assert [(line.number, line.content.product_id) for line in file.creations] == [(6, "s")]


def test_a_file_that_was_saved_in_the_future_says_so(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("productId,price,eventTime\np,1,\nq,1,2999-01-01T00:00:00Z\n")
    os.utime(path, (13_569_465_600, 13_569_465_600))
    derived, given = read_catalogue(path).bad
    assert derived.code == given.code == "EVENT_FROM_THE_FUTURE"
    assert "the file was last saved at 2400-01-01T" in derived.message
    assert "send the event when it takes effect" in given.message


def test_a_line_that_is_not_utf8(read):
    file = read("productId,openingStock,name\np,1,Café\nq,1,Cafe\nr,1,Thé\n".encode("latin-1"))
    assert codes(file) == [(2, "p", "NOT_UTF8"), (4, "r", "NOT_UTF8")]
    assert file.good == 1


@pytest.mark.parametrize("name", ["f.csv", "f.csv.gz", "f.txt", "f"])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    "content",
    [
        "productId,openingStock,name\r\np,1,Thé\r\n",
        "productId;openingStock;name\r\np;1;Thé\r\n",
        "productId\topeningStock\tname\r\np\t1\tThé\r\n",
        "\r\nproductId,openingStock,name,,\r\np,1,Thé,,\r\n , , ,,\r\n",
        ",productId,, openingStock ,name,\r\n,p ,,1,Thé\r\n\t,,,,\r\n",
    ],
    ids=["commas", "semicolons", "tabs", "empty rows and columns", "spaces and spare columns"],
)
def test_a_file_as_a_spreadsheet_saves_it(read, name, compress, content):
    file = read(compress(f"\ufeff{content}".encode()), name)
    assert (file.creations[0].content.name, file.good, file.bad) == ("Thé", 1, [])


@pytest.mark.parametrize("name", ["f.jsonl", "f.json.gz", "f.txt", "f"])
def test_a_file_of_json_lines_by_any_name(read, name):
    content = b'\xef\xbb\xbf{"productId": "p", "openingStock": 1}\r\n\r\n'
    file = read(gzip.compress(content) if name.endswith(".gz") else content, name)
    assert (file.good, file.bad) == (1, [])


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        (
            "Handle;Title\np;1\n",
            "f.csv",
            'line 1, .*productId is missing; the column "Handle" is unknown; .*"Title" is unknown.*--map COLUMN=FIELD',
        ),
        ("productId|name\np|1\n", "f.csv", r'the column "productId\|name" is unknown'),
        ("openingStock\n1\n", "f.csv", "the column productId is missing"),
        ("productId,productId\np,p\n", "f.csv", "the column productId appears twice"),
        (" \n", "f.csv", "f.csv is empty; a catalogue has one line for each product"),
        ("productId,,price\np,790\n", "f.csv", "line 2, has a value in a column without a name"),
        ('productId,openingStock\np,"1\n', "f.csv", "line 2, is not CSV"),
        (
            "productId\tname\np\tTea\n".encode("utf-16"),
            "f.csv",
            "is in UTF-16, or .* Save the file",
        ),
        ("productId\n".encode("utf-16-le"), "f.csv", "is in UTF-16, or not text at all"),
        (b"PK\x03\x04\x14\x00\xff", "f.xlsx", "is a workbook; a catalogue must be .* as CSV"),
        (
            gzip.compress(b"\xd0\xcf\x11\xe0\xa1\xb1"),
            "f.xls.gz",
            "is a workbook; a catalogue must be",
        ),
        (b"PK\x03\x04\x14\x00\xff", "f.ZIP", "is a zip archive; .* Unpack it"),
        (b"\x1f\x8b broken", "f.csv.gz", "is not a complete .gz file"),
        (
            gzip.compress(b"productId,openingStock\np,1\n" * 99)[:-20],
            "f.csv",
            "is not a complete .gz",
        ),
        ((ROOT / "cdk.json").read_text(), "cdk.json", r"cdk.json has a JSON object .*\"app\""),
        ('{"orderId": "o", "items": []}', "f", "send orders with inventory-orders send"),
        (
            json.dumps([{"productId": "p"}] * 2),
            "f.json",
            r"is a JSON list of 2 items; .*jq -c '.\[\]' f",
        ),
    ],
    ids=[
        *("a shop's export", "bars", "no id", "twice", "empty", "no name", "open quote", "UTF-16"),
        *("UTF-16 without a mark", "workbook", "old workbook", "archive"),
        *("broken", "cut", "settings", "orders", "list"),
    ],
)
def test_a_file_that_is_not_a_catalogue_is_refused_as_a_whole(read, content, name, said):
    with pytest.raises(UserError, match=said):
        read(content, name)


def test_reports_contain_no_formulas_and_load_keeps_apostrophes(read, tmp_path):
    odd = ["=1+1", "+1", "-5", "@SUM(1)", "'=1+1"]
    file = read("productId,openingStock\n" + "".join(f"{each},x\n" for each in odd))
    file.bad.append(FileError(7, "SCHEMA_VIOLATION", "\t=1: unknown field"))
    report = tmp_path / "report.csv"
    write_report(report, file.bad, tmp_path / "catalogue.csv")
    rows = list(csv.reader(report.read_text("utf-8-sig").splitlines()))[1:]
    assert [row[0] for row in rows] == ["2", "3", "4", "5", "6", "7"]
    assert [row[1] for row in rows[:5]] == ["'=1+1", "'+1", "'-5", "'@SUM(1)", "'=1+1"]
    assert rows[5][5] == "'\t=1: unknown field"
    ids = [row[1] for row in rows[:4]]
    again = read("productId,openingStock\n" + "".join(f"{each},1\n" for each in ids))
    assert [line.content.product_id for line in again.creations] == ids
    with pytest.raises(UserError, match="a report of bad lines"):
        read_catalogue(report)


def test_the_report_is_in_the_order_of_the_file_and_has_ids_columns_and_values(read, tmp_path):
    file = read(
        "productId;locationId;adjustmentId;delta;reason\np;lyon;d 1;5;A\nThé vert;berlin;;1e3;A\nq;;;5\n"
    )
    report = tmp_path / "report.csv"
    write_report(report, list(reversed(file.bad)), tmp_path / "catalogue.csv")
    assert report.read_bytes().startswith(b"\xef\xbb\xbf"), "Excel needs a byte order mark"
    header, *rows = csv.reader(report.read_text("utf-8-sig").splitlines(), delimiter=";")
    assert header == [
        *("line", "productId", "locationId", "adjustmentId", "column", "value", "code", "message")
    ]
    assert [row[:-1] for row in rows] == [
        ["2", "p", "lyon", "d 1", "adjustmentId", "d 1", "SCHEMA_VIOLATION"],
        ["3", "Thé vert", "berlin", "", "productId", "Thé vert", "SCHEMA_VIOLATION"],
        ["4", "q", "", "", "", "", "BAD_ROW"],
    ]
    assert re.search("; write Th~C3~A9~20vert, in all files and messages$", rows[1][-1])


def test_errors_are_listed_by_kind_with_different_messages_first():
    def bad(line, code, message):
        return FileError.in_line(line, code, message, {"productId": f"p-{line}"})

    errors = [bad(n, "UNKNOWN_PRODUCT", f"there is no product p-{n}") for n in range(2, 602)]
    errors += [bad(n, "BAD_ROW", "too short") for n in (700, 701)]
    errors += [bad(702, "SCHEMA_VIOLATION", "productId: is missing in the line")]
    errors += [bad(703, "SCHEMA_VIOLATION", "items[1].productId: no")]
    assert list(by_kind(errors)) == [
        "  600 lines: UNKNOWN_PRODUCT",
        *(f"    line {n}: there is no product p-{n}" for n in (2, 3, 4)),
        "    and 597 more lines",
        "  2 lines: BAD_ROW",
        "    line 700: too short",
        "    and 1 more line",
        "  1 line: SCHEMA_VIOLATION, column productId (missing)",
        "    line 702: productId: is missing in the line",
        "  1 line: SCHEMA_VIOLATION, column items.productId",
        "    line 703: items[1].productId: no",
    ]
