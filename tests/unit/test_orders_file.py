"""Order files: what they mean, and errors that name the line and the column."""

import gzip
import itertools
import json
import os
import re
import tracemalloc
from pathlib import Path

import pytest

from local import ROOT, sample_orders
from operations.catalogue_file import read_catalogue
from operations.errors import UserError
from operations.file_errors import FileRefusedError
from operations.orders_file import count_orders, read_orders
from operations.text_files import check_json_lines
from testing.world.events import order_body

HEADER = "orderId,userId,productId,quantity"
ROWS = f"{HEADER}\no-1,u-1,tea,2\no-1,u-1,mug,1\no-2,u-2,tea,30\n"
ORDERS = [order_body("o-1", {"tea": 2, "mug": 1}, "u-1"), order_body("o-2", {"tea": 30}, "u-2")]
LINES = "".join(f"{json.dumps(order)}\n" for order in ORDERS)


def written(folder, content, name="orders.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def orders_in(path):
    return [json.loads(message.body) for message in read_orders(path)]


# test_catalogue_file.py tests what the reader of text has in common: delimiters, line ends, marks and compression.
@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        LINES,
        f"\n  \n{LINES}",
        f"\n\n{ROWS}",
        f"{ROWS} , , , \n".replace("\n", ",,\n"),
        re.sub("[^,\n]+", r'"\g<0>"', ROWS),
        re.sub("(.*),(.*),(.*),(.*)", r"\3,\4,\2,\1", ROWS),
    ],
)
def test_a_file_is_parsed_into_its_orders(tmp_path, content):
    path = written(tmp_path, content)
    assert orders_in(path) == ORDERS
    assert [message.order_id for message in read_orders(path)] == ["o-1", "o-2"]
    assert count_orders(path) == 2
    assert count_orders(path, 1) == 1


def test_the_sample_files_have_the_same_orders():
    table, lines = (ROOT / "events" / name for name in ("orders.csv", "orders.jsonl"))
    assert count_orders(table) == count_orders(lines) == 2
    assert orders_in(table) == orders_in(lines)


def test_rows_may_name_locations_a_hold_and_attributes(tmp_path):
    rows = "o-1,u,tea,1,(default),,900,web\no-1,u,mug,2,lyon,,900,web\no-2,u,tea,1,,berlin (default),,\n"
    first, second = orders_in(
        written(tmp_path, f"{HEADER},locationId,locations,holdSeconds,attributes.channel\n{rows}")
    )
    assert first == order_body("o-1", {}, "u") | {
        "items": [
            {"productId": "tea", "quantity": 1, "locationId": ""},
            {"productId": "mug", "quantity": 2, "locationId": "lyon"},
        ],
        "holdSeconds": 900,
        "attributes": {"channel": "web"},
    }
    assert second == order_body("o-2", {"tea": 1}, "u") | {"locations": ["berlin", ""]}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("o-1,u,tea,1,,,9m", "line 2: holdSeconds: must be a whole number of seconds from 60"),
        ("o-1,u,tea,1,,berlin b!,", "line 2: locations: must be a location"),
        ("o-1,u,tea,1,b!,,", "line 2: locationId: must be a location"),
        ("o-1,u,tea,1,,,900\no-1,u,mug,1,,,", "line 3: holdSeconds: the order o-1 began at line 2"),
    ],
)
def test_an_error_in_an_optional_column_names_it(tmp_path, rows, fault):
    with pytest.raises(FileRefusedError, match=f"\n    {fault}"):
        count_orders(written(tmp_path, f"{HEADER},locationId,locations,holdSeconds\n{rows}\n"))


def test_ids_of_digits_and_lines_of_one_product_stay_as_they_are(tmp_path):
    path = written(tmp_path, f"{HEADER}\n007,12,0042,1\n007,12,0042,3\n")
    line = {"productId": "0042", "quantity": 1}
    items = [line, line | {"quantity": 3}]
    assert orders_in(path) == [{"orderId": "007", "userId": "12", "items": items}]
    assert count_orders(path) == 1


def test_json_lines_are_sent_unchanged(tmp_path):
    content = '{"items":[{"quantity":1,"productId":"tea"}],  "userId":"u","orderId":"o"}'
    (message,) = read_orders(written(tmp_path, f"{content}\n"))
    assert message.body == content


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("tea,mug\ntea\n", f"is neither an order in JSON nor the header {HEADER}: tea, mug"),
        ("a;b\n", f"line 1, is neither an order in JSON nor the header {HEADER}: a, b"),
        ("\n\nTee\n", "line 3, is neither an order in JSON nor the header"),
        ("orderId,userId,productId\n", "line 1: the column quantity is missing"),
        (
            HEADER.replace("orderI", "order_i"),
            'orderId is missing; the column "order_id" is unknown',
        ),
        (f"{HEADER},price\n", 'line 1: the column "price" is unknown'),
        (
            f"{HEADER},buyers\n",
            "For other fields, such as buyers, send the orders as JSON lines",
        ),
        (f'{HEADER}\no-1,u-1,tea,1\no-2,"u-2,tea,1\no-3,u,tea,1\n', "line 3, is not CSV"),
        (f"{HEADER}\no-1,u-1,Tee grün,1\n".encode("latin-1"), "line 2, character 15: not UTF-8"),
        (b'{"orderId": "\xff"}\n', "line 1, character 14: not UTF-8"),
    ],
)
def test_a_file_that_is_not_one_of_orders_is_refused_unchecked_too(tmp_path, content, says):
    path = written(tmp_path, content)
    for read in (count_orders, orders_in):
        with pytest.raises(UserError) as caught:
            read(path)
        assert says in str(caught.value)
        assert str(path) in str(caught.value)


WHOLE_NUMBER = "line 2: quantity: must be a whole number from 1 to 1,000,000"
BEGAN = ": orderId: the order o-1 began at line 2"


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("o-1,u-1,tea,two", WHOLE_NUMBER),
        ("o-1,u-1,tea,1\no-1,u-1,mug,0", "line 3: quantity: must be a whole number"),
        ("o-1,u-1,tea,", f'{WHOLE_NUMBER}, but is ""'),
        ('o-1,u-1,tea,"1,000"', f'{WHOLE_NUMBER}, but is "1,000"'),
        ("o-1,u-1,tea,2.0", "line 2: quantity: "),
        ("o-1,u-1,tea,1\n\no-1,u-1,BANK CHARGES,1", "line 4: productId: must be 1 to 64 "),
        ("o 1,u-1,tea,1", "line 2: orderId: must be "),
        ("o-1,,tea,1", "line 2: userId: must be "),
        ("\n".join(f"o-1,u-1,p-{n},1" for n in range(100)), "line 2: items: an order may have at"),
        (HEADER, "line 2: quantity: "),
    ],
)
def test_an_error_names_its_line_and_column(tmp_path, rows, fault):
    path = written(tmp_path, f"{HEADER}\n{rows}\no-9,u-9,tea,1\n")
    with pytest.raises(UserError) as caught:
        count_orders(path)
    assert f"\n    {fault}" in str(caught.value)
    assert "items[" not in str(caught.value)
    # Unchecked, every line is sent, and the valid lines keep their meaning.
    *bad, good = read_orders(path)
    assert bad
    assert json.loads(good.body) == order_body("o-9", {"tea": 1}, "u-9")


APART = "o-1,u-1,tea,1\no-2,u-1,tea,1\no-1,u-1,"


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (f"{APART}mug,1", f"line 4{BEGAN}; sort the file by orderId"),
        (f"{APART}mug,x", f"line 4{BEGAN}"),
        (f"{APART}mug", "line 4: the row has 3 cells"),
        ("o-1,u-1,tea,x\no-2,u-1,tea,1\no-1,u-1,mug,1", f"line 4{BEGAN}"),
        ("o-1,u-1,tea,1\no-1,u-2,mug,1", f"line 3: userId{BEGAN.removeprefix(': orderId')} with"),
        ("o-1,u-1,tea,1\no-1,u-1,mug, red,1", "line 3: the row has 5 cells"),
    ],
)
@pytest.mark.parametrize("limit", [None, 1])
@pytest.mark.parametrize("unchecked", [True, False])
def test_no_option_sends_an_order_in_part(tmp_path, rows, fault, limit, unchecked):
    path = written(tmp_path, f"{HEADER}\n{rows}\n")
    with pytest.raises(UserError) as caught:
        count_orders(path, limit, unchecked=unchecked)
    assert f"\n    {fault}" in str(caught.value)
    assert "--unchecked does not send them" in str(caught.value)


def test_unchecked_counts_lines_that_are_not_orders(tmp_path):
    path = written(tmp_path, f"{ROWS}o-3,u-3,tea,x\n")
    assert count_orders(path, unchecked=True) == 3
    assert count_orders(path, 2) == 2
    with pytest.raises(UserError, match="or send them unchanged with --unchecked"):
        count_orders(path)


def test_an_error_in_json_lines_names_its_line_and_column(tmp_path):
    path = written(tmp_path, f'{LINES}{{"orderId": "o-3\n')
    with pytest.raises(UserError, match=r"\n    line 3: .* starting at column 13, before"):
        count_orders(path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (json.dumps(ORDERS[0], indent=2), "JSON object that spans several lines .*jq -c . orders"),
        ("".join(json.dumps(order, indent=1) for order in ORDERS), "spans several lines .*jq -c ."),
    ],
)
def test_json_that_is_not_one_object_on_each_line_says_how_to_write_it(tmp_path, content, says):
    path = written(tmp_path, content, "orders.json")
    for read in (count_orders, orders_in):
        with pytest.raises(UserError, match=says):
            read(path)


@pytest.mark.parametrize(
    ("read", "content", "says"),
    [
        (
            *(count_orders, ["{\n", "[" * 10**6]),
            "line 2, has more than 1,048,576 characters; write each product or",
        ),
        (
            *(read_catalogue, ["[", "{}," * 10**6]),
            r"line 1, has .*Convert a JSON list with: jq -c '.\[\]' f.gz",
        ),
        (
            *(count_orders, ["x,", f'"{"y" * 1000}\n",' * 1000]),
            "line 1, is not CSV .the row has more than 1,048,576 characters",
        ),
    ],
    ids=["line", "list", "CSV row"],
)
def test_a_line_without_end_is_refused_without_reading_it(tmp_path, read, content, says):
    """The compressed file is small; its line has 30 million characters."""
    path, (begin, more) = tmp_path / "f.gz", content
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(begin)
        for _ in range(30_000_000 // len(more)):
            file.write(more)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=says):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_document_without_end_is_not_read_as_a_whole():
    endless = itertools.chain(["[\n"], itertools.repeat(f'"{"x" * 10**6}",\n'))
    check_json_lines(Path("f"), endless, "a catalogue", "{}")


def test_a_line_that_is_a_list_does_not_make_the_file_one(tmp_path):
    path = written(tmp_path, f"[]\n{LINES}")
    assert [order for order in orders_in(path) if order] == ORDERS


def test_every_faulty_row_is_an_error_with_the_ids_of_its_order(tmp_path):
    rows = "o-1,u-1,tea,1e3\no-1,u-1,1-Mar,1\n#7,u-2,tea,1\no-8,u-2,4.006E+12,1\no-9,u-2\n"
    path = written(tmp_path, f"{HEADER}\n{rows}")
    with pytest.raises(FileRefusedError, match="5 errors in 4 orders") as caught:
        count_orders(path)
    found = [(bad.number, bad.code, bad.ids["orderId"], bad.column) for bad in caught.value.bad]
    assert sorted(found) == [
        (2, "SCHEMA_VIOLATION", "o-1", "quantity"),
        (3, "DATE_INSTEAD_OF_CODE", "o-1", "productId"),
        (4, "SCHEMA_VIOLATION", "#7", "orderId"),
        (5, "ROUNDED_CODE", "o-8", "productId"),
        (6, "BAD_ROW", "o-9", ""),
    ]
    assert caught.value.bad[0].message.endswith('but is "1e3"; write 1000')
    assert caught.value.bad[2].message.endswith("; write ~237, in all files and messages")


def test_an_error_in_json_has_its_path_and_the_value_as_written(tmp_path):
    items = '"items": [{"productId": "tea", "quantity": 1e3}]'
    path = written(tmp_path, f'{{"orderId": "o", "userId": "u", {items}}}\n')
    with pytest.raises(FileRefusedError, match=r"column items\.quantity") as caught:
        count_orders(path)
    (bad,) = caught.value.bad
    assert (bad.ids, bad.column, bad.value) == (
        *({"orderId": "o", "userId": "u"}, "items[0].quantity", "1e3"),
    )
    assert bad.message.endswith("but is 1e3; write 1000")


def test_a_pipe_is_refused_because_the_file_is_read_twice(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a pipe, but must be read twice; write a file of"):
        count_orders(tmp_path / "pipe")


def test_a_folder_and_an_empty_file_hold_no_orders(tmp_path):
    with pytest.raises(UserError, match="is a directory"):
        count_orders(tmp_path)
    for content in ("", "\n\n", HEADER):
        with pytest.raises(UserError, match="contains no orders"):
            count_orders(written(tmp_path, content))


def test_only_the_demonstration_takes_orders_without_quantities():
    with pytest.raises(UserError, match=f"nor the header {HEADER}"):
        count_orders(sample_orders.REAL_ORDERS)
    messages = sample_orders.orders_of(sample_orders.REAL_ORDERS, "d1", 100)
    assert [message.order_id for message in messages[:2]] == [
        "d1-basket-000001",
        "d1-basket-000002",
    ]
    assert messages == sample_orders.orders_of(sample_orders.REAL_ORDERS, "d1", 100)


def test_each_run_of_the_demonstration_places_new_orders(tmp_path):
    path = written(tmp_path, f"{ROWS}o-3,u,two words,1\n")
    placed = sample_orders.orders_of(path, "d1", 3)
    assert [message.order_id for message in placed] == ["d1-o-1", "d1-o-2", None]
    assert json.loads(placed[0].body) == ORDERS[0] | {"orderId": "d1-o-1"}
