"""Files whose columns have other names: `--map` for products, orders and commands."""

import json

import pytest
from typer.testing import CliRunner

from local.commands import main
from operations import queues
from operations.catalogue_file import read_catalogue
from operations.columns import ColumnMap
from operations.commands import queues as queue_commands
from operations.commands_file import read_commands
from operations.errors import UserError
from operations.file_errors import FileRefusedError
from operations.orders_file import count_orders, read_orders

OTHERS = ("No=orderId", "Customer=userId", "SKU=productId", "Qty.=quantity")
ORDERS = "No,Customer,SKU,Qty.,Colour\no-1,u-1,tea,2,red\n"


@pytest.fixture
def written(tmp_path):
    def written(content):
        path = tmp_path / "shop.csv"
        path.write_text(content)
        return path

    return written


def test_products_orders_and_commands_are_read_from_columns_with_other_names(written):
    orders = ColumnMap.of([*OTHERS, "Colour="])
    (message,) = read_orders(written(ORDERS), orders)
    items = [{"productId": "tea", "quantity": 2}]
    assert json.loads(message.body) == {"orderId": "o-1", "userId": "u-1", "items": items}
    commands = ColumnMap.of(["=Do==action", "No = orderId", "Colour="])
    (line,) = read_commands(written("=Do=,No,Colour\nconfirm,o-1,red\n"), columns=commands)
    assert line.document == {"action": "confirm", "orderId": "o-1"}
    products = ColumnMap.of(["SKU=productId", "stock=openingStock", "Colour=", "name="])
    found = read_catalogue(written("SKU;stock;Colour;name\ntea;4;red;Tea\n"), columns=products)
    (creation,) = found.creations
    assert (creation.content.product_id, creation.content.opening_stock) == ("tea", 4)
    assert creation.content.name is None
    assert not found.bad


READERS = (count_orders, read_commands, read_catalogue)


@pytest.mark.parametrize(
    ("read", "content", "options", "said"),
    [
        *(
            (
                read,
                ORDERS,
                ["Sku=productId"],
                'Sku=productId: .*shop.csv, line 1,? has no column "Sku"; it has No, .*, Colour$',
            )
            for read in READERS
        ),
        *(
            (read, ORDERS, ["SKU=product"], "product is not a field; the fields are .*productId")
            for read in READERS
        ),
        *(
            (read, "{}\n", ["SKU=productId"], "has JSON lines; --map is for CSV files")
            for read in READERS
        ),
        (count_orders, ORDERS, OTHERS, 'column "Colour" is unknown.*--map COLUMN= leaves it out'),
        (count_orders, ORDERS, [*OTHERS, "Colour=productId"], "the column productId appears twice"),
        (
            count_orders,
            ORDERS,
            [*OTHERS, "Colour=attributes.my colour"],
            "attributes.my colour is not a field",
        ),
        (
            count_orders,
            "orderId,userId,productId,quantity,attributes.my colour\n",
            [],
            'after attributes., the column "attributes.my',
        ),
        (
            read_catalogue,
            "productId,attributes.colour\n",
            [],
            'the column "attributes.colour" is unknown',
        ),
    ],
)
def test_a_map_that_does_not_fit_names_what_there_is(written, read, content, options, said):
    with pytest.raises(UserError, match=said):
        read(written(content), columns=ColumnMap.of(options))


@pytest.mark.parametrize("option", ["", "SKU", "=productId"])
def test_a_map_needs_a_column_and_names_it_once(option):
    with pytest.raises(UserError, match=f"--map {option}: write COLUMN=FIELD, such as"):
        ColumnMap.of([option])
    with pytest.raises(UserError, match="names the column SKU twice"):
        ColumnMap.of(["SKU=productId", "SKU=name"])


def test_an_error_names_the_column_as_the_file_does(written):
    row = "o-1,u-1,the tea,2,red\no-2,u-1,tea,,red\n"
    path, columns = written(f"{ORDERS}{row}o-3,u-1\n"), ColumnMap.of([*OTHERS, "Colour="])
    with pytest.raises(FileRefusedError, match=r"line 5: the row has 2 cells, .* has 5") as caught:
        count_orders(path, columns=columns)
    bad = {error.number: error for error in caught.value.bad}
    assert (bad[3].column, bad[3].value) == ("SKU", "the tea")
    assert bad[3].message.startswith("SKU: must be 1 to 64 printable")
    assert bad[4].kind == "SCHEMA_VIOLATION, column Qty."


def test_send_takes_a_map(written, monkeypatch):
    sent = []
    monkeypatch.setattr(queue_commands, "aws_of", lambda *_: queues)
    monkeypatch.setattr(queues, "url_of", lambda *_: "https://sqs.example/1/OrderQueue")
    monkeypatch.setattr(queues, "send", lambda _aws, _output, messages, **_: sent.extend(messages))
    options = [f"--map={each}" for each in (*OTHERS, "Colour=attributes.colour")]
    assert CliRunner().invoke(main.app, ["send", str(written(ORDERS)), *options]).exit_code == 0
    (message,) = sent
    assert json.loads(message.body)["attributes"] == {"colour": "red"}
