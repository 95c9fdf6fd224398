"""Runs the commands in the README and the docs from top to bottom, their JSON examples, and the sample events.

Each test has a stack in the state in which `make up` leaves it. The runbook's commands are in test_runbook.py, which
creates each situation first.
"""

import json
import re
import shutil
from functools import partial

import pytest

from docs_generator import sample_events as samples
from local import ROOT, tokens
from local.invoke import invoke_deployed
from operations import forget
from operations.audit import read_books
from operations.http_api import HttpApi
from testing.world.events import order_body, sqs_event
from tests.support.orders import parse_order
from tests.support.shell import NOT_RUN, Shell, commands_of, is_run, make_fresh
from tests.support.stack import cli, create, wait_until, wait_until_settled
from tests.support.tokens import Issuer, issued_by

EVENTS = ROOT / "events"
PAGES = [
    "README.md",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs").rglob("*.md"))),
]
TRIED_HERE = {
    "docs/api.md",
    "docs/contributing.md",
    "docs/data-model.md",
    "docs/import.md",
    "docs/limits.md",
    "docs/locations.md",
    "docs/tutorial.md",
}
TRIED_IN_TEST_RUNBOOK = {"docs/runbook.md"}


@pytest.fixture
def no_rule(aws):
    """After the test, remove the rules that a page's commands have added to the bus, and their queues."""
    events, bus = aws.session.client("events"), {"EventBusName": aws.outputs["EventBusName"]}
    yield
    for rule in events.list_rules(**bus)["Rules"]:
        for target in events.list_targets_by_rule(Rule=rule["Name"], **bus)["Targets"]:
            events.remove_targets(Rule=rule["Name"], Ids=[target["Id"]], **bus)
            for arn in (target["Arn"], target["DeadLetterConfig"]["Arn"]):
                url = aws.sqs.get_queue_url(QueueName=arn.rsplit(":", 1)[1])["QueueUrl"]
                aws.sqs.delete_queue(QueueUrl=url)
        events.delete_rule(Name=rule["Name"], **bus)


@pytest.fixture
def aws(aws):
    make_fresh(aws)
    return aws


def row_of(aws, order_id):
    key = {"orderId": {"S": order_id}}
    return aws.dynamodb.get_item(
        TableName=aws.outputs["OrdersTableName"], Key=key, ConsistentRead=True
    ).get("Item")


def status_of(aws, order_id):
    row = row_of(aws, order_id)
    return row and row["status"]["S"]


def test_every_page_with_commands_is_run_and_every_exception_is_needed():
    found = {page: commands_of(page) for page in PAGES}
    to_run = {page for page, lines in found.items() if any(map(is_run, lines))}
    assert to_run <= TRIED_HERE | TRIED_IN_TEST_RUNBOOK
    every = [command for lines in found.values() for command in lines]
    for pattern in NOT_RUN:
        assert any(re.fullmatch(pattern, command) for command in every), pattern


def test_the_files_that_contributing_names_exist():
    for command in commands_of("docs/contributing.md"):
        assert not is_run(command), "this test does not run such a command"
        for path in re.findall(r"tests/[\w/.]+", command):
            assert (ROOT / path).exists(), command


def steps_of(name):
    """Return the commands of a document, each with the lines that the document shows as its output."""
    blocks = re.findall(r"```console\n(.*?)```", (ROOT / name).read_text("utf-8"), flags=re.DOTALL)
    found = re.findall(
        r"^\$ ((?:.*\\\n)*.*\n)((?:(?!\$ ).*\n)*)", "".join(blocks), flags=re.MULTILINE
    )
    return [(re.sub(r"\\\n *", "", command).strip(), printed) for command, printed in found]


def prints(shell, command, expected):
    """Whether each line on a page is the start of a line that the command prints."""
    try:
        said = shell.run(command)
    except AssertionError:
        # The order does not exist yet.
        return False
    printed = [" ".join(line.split()) for line in said.splitlines()]
    return all(
        any(line.startswith(" ".join(shown.split())) for line in printed)
        for shown in expected.splitlines()
    )


LISTS = re.compile(" --status| redrive|make audit")


def lists(shell, command, expected):
    """Whether a command prints the lines that a page shows, with no other rows in its table."""
    rows, shown = (
        [line for line in text.splitlines() if line.startswith(" ")]
        for text in (shell.run(command), expected)
    )
    # The page leaves out the heading.
    return len(rows) == len(shown) + 1 and prints(shell, command, expected)


def leave_orders_and_dead_letters(aws):
    """Leave orders to ship and dead letters behind, as a demonstration and the page's own commands do."""
    create(aws, "tea-white-monkey", 7)
    orders = [order_body(order_id, {"tea-white-monkey": 1}) for order_id in ("d1-1", "o-1001")]
    invoke_deployed(aws, "place_orders", sqs_event(*orders, "not an order"))
    for order in orders:
        command = {"action": "confirm", "orderId": order["orderId"]}
        assert invoke_deployed(aws, "change_orders", command).answer["result"] == "APPLIED"
    assert status_of(aws, "d1-1") == status_of(aws, "o-1001") == "CONFIRMED"
    assert "INVALID_JSON" in cli("redrive").stdout


def test_the_tutorial_from_top_to_bottom_after_a_demonstration_and_an_earlier_reader(aws):
    leave_orders_and_dead_letters(aws)
    shell = Shell(aws)
    for command, expected in steps_of("docs/tutorial.md"):
        if LISTS.search(command):
            wait_until(aws, partial(lists, shell, command, expected))
        elif " orders o-" in command:
            # Messages take effect with a short delay.
            wait_until(aws, partial(prints, shell, command, expected))
        elif command.startswith("make invoke"):
            assert prints(shell, command, expected)
        elif is_run(command):
            shell.run(command)


def test_data_model_after_the_order_of_the_tutorial(aws, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    # On the embedded AWS, indexes are never stale.
    monkeypatch.setattr(forget, "LOOK_AGAIN_SECONDS", 0)
    shell = Shell(aws)
    shell.run_all(commands_of("docs/tutorial.md", end="The second terminal shows"))
    wait_until(aws, lambda: row_of(aws, "o-1001"))
    order = row_of(aws, "o-1001")
    audited, orders_of_a_customer, available, _, forgotten = shell.run_all(
        commands_of("docs/data-model.md")
    )
    assert "order o-1001" in audited
    assert f"o-1001  PENDING  {order['createdAt']['S'][:16]}" in orders_of_a_customer
    assert "tea-white-monkey: 40 on hand, 2 committed, 38 available, ACTIVE" in available
    assert "1 order pseudonymised: forgotten-" in forgotten
    assert row_of(aws, "o-1001")["userId"]["S"] in forgotten


def test_the_snippets_for_a_shops_developer_print_what_the_page_says(aws, no_rule, capsys):
    page = (ROOT / "docs" / "orders.md").read_text("utf-8")
    found = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", page, flags=re.DOTALL)
    assert len(found) == page.count("```python") > 8
    assert sum(bool(printed) for _, printed in found) == page.count("```text") > 5
    names = {}
    for code, printed in found:
        exec(code, names)
        said = capsys.readouterr().out
        assert not printed or said == printed, code
    assert names["newest"]["o-2001"]["attributes"] == {"channel": "web"}
    with pytest.raises(SystemExit, match="o-2001 was placed before"):
        exec(next(code for code, _ in found if "placed = order(" in code), names)
    wait_until_settled(aws)
    assert all(account.difference == 0 for account in read_books(aws).accounts)


def test_an_order_is_placed_read_and_listed_as_the_page_on_the_api_says(aws):
    """Run the page's commands from top to bottom."""
    shell, answers = Shell(aws), []
    with Issuer() as issuer, issued_by(HttpApi.of(aws, "CustomerApiUrl"), issuer):
        for command in commands_of("docs/api.md"):
            said = shell.run(command) if is_run(command) else None
            if command == 'eval "$(make tokens)"':
                assert shell.variables["CUSTOMER_TOKEN"] != shell.variables["OPERATOR_TOKEN"]
                # The embedded AWS cannot reach itself by TLS, so another issuer without TLS signs the tokens.
                groups = {"cognito:groups": ["operators"]}
                shell.variables["CUSTOMER_TOKEN"] = issuer.token(sub=tokens.CUSTOMER)
                shell.variables["OPERATOR_TOKEN"] = issuer.token(sub="operator", **groups)
            elif command.startswith(("ask ", "as_customer ", "as_operator ")):
                answers.append(json.loads(said))
    placed, listed, refused, confirmed, seen, changed, found = answers
    assert placed["status"] == "PENDING"
    assert listed["orders"] == [placed]
    assert refused["code"] == "NOT_PERMITTED"
    (order,) = seen["orders"]
    assert confirmed["status"] == order["status"] == "CONFIRMED"
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert (changed["result"], len(changed["barcodes"])) == ("APPLIED", 3)
    del found["elements"]
    assert json.dumps(found)[:-1] in page
    assert json.dumps(refused) in page
    assert json.dumps(confirmed) in page


def stock_of(aws, product_id):
    return json.loads(cli("stock", product_id, "--json").stdout)["onHand"]


def test_a_product_is_listed_at_a_location_as_the_page_on_locations_says(aws):
    (answer,) = Shell(aws).run_all(commands_of("docs/locations.md"))
    assert '"locationId": "berlin"' in answer
    assert '"result": "APPLIED"' in answer


def test_the_sample_shop_is_imported_as_the_page_on_imports_says(aws):
    (copy, _), (command, expected) = steps_of("docs/import.md")
    shutil.rmtree(ROOT / ".local" / "shop", ignore_errors=True)
    shell = Shell(aws)
    shell.run(copy)
    assert prints(shell, command, expected)
    assert stock_of(aws, "JP-50") == 45
    assert status_of(aws, "6105310000008") == "CONFIRMED"


def test_the_movements_of_a_night_are_booked_once_however_often_they_are_loaded(aws, tmp_path):
    page = (ROOT / "docs" / "limits.md").read_text("utf-8")
    (nightly,) = re.findall(r"```csv\n(.*?)```", page, flags=re.DOTALL)
    file = tmp_path / "nightly.csv"
    file.write_text(nightly)
    (load,) = commands_of("docs/limits.md")
    teas = ("tea-earl-grey", "tea-peppermint")
    before = [stock_of(aws, tea) for tea in teas]
    for _ in range(2):
        Shell(aws).run(load.replace(file.name, str(file)))
        assert [stock_of(aws, tea) for tea in teas] == [before[0] + 40, before[1] - 2]


def test_an_id_with_spaces_is_encoded_as_the_page_on_limits_says():
    page = (ROOT / "docs" / "limits.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    for sku in ("Earl Grey, 50 %", "a~20b", "a b", "#1/2?", "é"):
        names = {}
        exec(code.split("assert")[0].replace('"Earl Grey, 50 %"', repr(sku)), names)
        parse_order(json.dumps(order_body("o-1", {names["product_id"]: 1})))
        assert names["unquote"](names["product_id"].replace("~", "%")) == sku
    exec(code, {})


def test_every_sample_event_works_as_its_readme_says(aws):
    """Sent in the order of the index, good samples succeed and bad ones are refused."""
    for name in samples.SHOWS:
        done = invoke_deployed(aws, samples.function_of(name), samples.event_of(name))
        assert not done.failed, (name, done.answer)
        assert done.is_good is not samples.is_bad(name), (name, done.answer)
        assert "requests to SQS failed" not in done.logs
        assert "No application metrics" not in done.logs
    ends = [status_of(aws, f"sample-o-100{n}") for n in range(1, 5)]
    assert ends == ["CONFIRMED", "PENDING", "REJECTED", "REJECTED"]
