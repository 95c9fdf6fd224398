"""The local dashboard in a real browser: its widgets, its values, live updates, and its screenshot."""

import json
import re
import statistics
import time

import boto3
import psutil
import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from local.desk import background
from operations import queues
from testing.world.events import order_body
from tests.support.desk import ask
from tests.support.logs import give_every_worker_nothing_to_do, values_in_logs
from tests.support.stack import cli, create, message


@pytest.fixture(scope="module")
def url(aws):
    return background.start().endpoint


def open_dashboard(page, url, span="3h"):
    page.goto(background.running().address(f"dashboard?range={span}"))
    page.wait_for_selector("body[data-now]")


def number(page, label):
    """Read a single unrounded value from the page."""
    return float(page.get_attribute(f'.is-values [data-label="{label}"] b', "data-value") or 0)


def legend(page, title):
    """Read the unrounded values in a graph's legend, by label."""
    found = page.eval_on_selector_all(
        f'[data-title="{title}"] .legend li[data-label]',
        "items => items.map(item => [item.dataset.label, item.querySelector('b').dataset.value])",
    )
    return {label: float(value) if value else None for label, value in found}


def wait_for_number(aws, page, label, value):
    """Wait until the page shows a value.

    On a busy machine, a worker's last log lines are only delivered during its next invocation, so this function sends
    every worker an empty invocation from time to time.
    """
    quiet, seen = 0, None
    while quiet < 15:
        quiet, seen = (quiet + 1, seen) if number(page, label) == seen else (0, number(page, label))
        try:
            page.wait_for_function(
                "([label, value]) => Number(document.querySelector(`.is-values [data-label='${label}'] b`)"
                ".dataset.value) === value",
                arg=[label, value],
                timeout=3000,
            )
            return
        except PlaywrightTimeoutError:
            give_every_worker_nothing_to_do(aws)
    raise AssertionError(f"{label}: {number(page, label)} on the page, expected {value}")


def wait_for_more_looks(page, seconds=3):
    """Wait until the page has drawn values measured after this call. Fail if it stops drawing."""
    goal = time.time() + seconds
    while (now := float(page.get_attribute("body", "data-now"))) < goal:
        page.wait_for_function("now => Number(document.body.dataset.now) > now", arg=now)


def deployed_body(aws):
    answer = boto3.client("cloudwatch").get_dashboard(DashboardName=aws.outputs["DashboardName"])
    return json.loads(answer["DashboardBody"])["widgets"]


def boxes(page):
    """Return the positions and sizes of all charts."""
    return page.eval_on_selector_all(
        ".charts > .card",
        "all => all.map(one => [one.offsetLeft, one.offsetWidth, one.offsetHeight])",
    )


def test_the_page_shows_every_widget_of_the_deployed_body(aws, page, url):
    open_dashboard(page, url)
    assert page.inner_text("h1") == aws.outputs["DashboardName"]
    shown = page.text_content("main")
    for widget in deployed_body(aws):
        properties = widget["properties"]
        if widget["type"] == "alarm":
            said = page.inner_text("#alarms summary")
            counts = [int(one) for one in re.findall(r"\d+", said)]
            assert sum(counts) == len(properties["alarms"]) > 30
        elif widget["type"] == "text":
            title = properties["markdown"].splitlines()[0].removeprefix("## ")
            assert title in shown or title == "Does the API answer?", (
                "the local dashboard does not measure this"
            )
        else:
            assert properties["title"] in shown
    assert "not supported here" not in shown


def test_an_alarm_and_new_orders_appear_while_the_page_is_open(aws, page, url):
    create(aws, "live", 15)
    # Otherwise, the last log lines of earlier invocations would be counted as this test's.
    give_every_worker_nothing_to_do(aws)
    open_dashboard(page, url)
    placed, rejected, dead = (number(page, n) for n in ("placed", "rejected", "dead-lettered"))
    before = boxes(page)
    orders = [message(order_body(f"live-{n}", {"live": 1})) for n in range(20)]
    queues.send(aws, queues.STANDARD, [*orders, message("not an order")])
    wait_for_number(aws, page, "placed", placed + 15)
    wait_for_number(aws, page, "rejected", rejected + 5)
    wait_for_number(aws, page, "dead-lettered", dead + 1)
    alarm = page.locator('[data-alarm="Order Queue Dead Letters"]')
    alarm.get_by_text("First: read errorCode").wait_for()
    assert boxes(page) == before, "no chart moves"


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def test_after_the_demonstration_the_page_agrees_with_tables_and_logs(
    aws, page, url, demonstration
):
    open_dashboard(page, url)
    give_every_worker_nothing_to_do(aws)
    wait_for_more_looks(page)
    metrics, durations, errors = values_in_logs(aws)

    def all_of(name):
        return metrics[name, None]

    result = demonstration.result
    assert number(page, "placed") == sum(all_of("OrdersPlaced")) >= result["ordersPlaced"] > 0
    assert number(page, "rejected") == sum(all_of("OrdersRejected")) >= result["ordersRejected"] > 0
    assert number(page, "replayed") == sum(all_of("OrdersReplayed"))
    assert number(page, "dead-lettered") == sum(all_of("MessagesDeadLettered"))
    expected = {
        "Conflict rate": {"of attempts": 100 * statistics.fmean(all_of("VersionConflict"))},
        "Retries of a change": {
            "average": statistics.fmean(all_of("Retries")),
            "p95": percentile(all_of("Retries"), 95),
        },
        "Retries that succeed": {
            "of retried changes": 100 - 100 * statistics.fmean(all_of("RetriesExhausted"))
        },
        "Visits to the depot, by reason": {
            "visits": len(all_of("DepotWait")),
            "rows that lent": sum(all_of("Loans")),
        },
        "Orders per transaction": {
            "average": statistics.fmean(all_of("OrdersPerTransaction")),
            "most": max(all_of("OrdersPerTransaction")),
        },
        "Rejected, by reason": {
            "INSUFFICIENT_STOCK": sum(metrics["OrdersRejected", "INSUFFICIENT_STOCK"])
        },
        "Duration, p95": {"PlaceOrders": percentile(durations["PlaceOrders"], 95)},
        "Errors": {"PlaceOrders": errors["PlaceOrders"]},
        "Waiting": {"StockQueue": 0},
    }
    for title, values in expected.items():
        found = legend(page, title)
        for label, value in values.items():
            assert found[label] == pytest.approx(value, rel=1e-6), (title, label)
    # The desk samples the queues about every second, and may miss messages that wait for less.
    assert 0 <= legend(page, "Waiting")["OrderQueue"] <= result["messagesSent"]
    assert 1 <= legend(page, "Concurrent invocations")["PlaceOrders"] <= 60
    assert 0 <= legend(page, "Age of the oldest message")["OrderQueue"] < 600


def test_there_is_one_server_and_its_address_is_printed(aws, url):
    server = background.start()
    assert server.endpoint == url
    assert cli("dashboard", "--url").stdout == f"{server.address('dashboard')}\n"
    assert cli("desk", "--url").stdout == f"{server.address()}\n"
    assert server.address() in cli("desk").stdout
    assert background.NOTE.stat().st_mode & 0o077 == 0, "only the operator may read the token"
    sockets = psutil.Process(server.pid).net_connections()
    assert {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
    lanes = ask(url, "GET", "/local/lanes", X_Desk_Token=server.token)
    assert lanes.said["unreadable"] == {}
