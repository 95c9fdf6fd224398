"""Every sample event with its handler on moto: it is answered, and logs only ids and reasons."""

import hashlib
import json
import re
import sys

import pytest

from local import ROOT
from local.invoke import FakeContext, function_names, load_handler, make_stack
from tests.support.tea_shop import forget_what_handlers_made

SAMPLES = sorted(path.stem for path in (ROOT / "events").glob("*.json"))
# A log line may name these, so that the message can be found.
NAMED = {"orderId", "adjustmentId", "productId", "eventId", "messageId", "createdAt"}


def leaves(value, name=""):
    """List every name and every text of a document, each with the name of its field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield "", key
            yield from leaves(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, name)
    elif isinstance(value, str):
        yield name, value


def texts_of(event):
    """List what the sender sent: all texts except ids, whole bodies, and anything that is not JSON; and texts of rows."""
    if event.get("Records") and "dynamodb" in event["Records"][0]:
        yield from (text for name, text in leaves(event) if name == "S")
        return
    for body in [record["body"] for record in event.get("Records", ())] or [json.dumps(event)]:
        yield body
        try:
            document = json.loads(body)
        except ValueError:
            continue
        yield from (text for name, text in leaves(document) if name and name not in NAMED)


@pytest.fixture(scope="module")
def moto():
    """One shop for all samples, in whatever order they come."""
    # Slow to import, and each process would do so. Clients made within have its hooks.
    from moto import mock_aws

    with pytest.MonkeyPatch.context() as patch, mock_aws():
        # moto answers for AWS's own addresses only; the tests' embedded AWS may run meanwhile.
        patch.delenv("AWS_ENDPOINT_URL", raising=False)
        for name, value in make_stack().items():
            patch.setenv(name, value)
        forget_what_handlers_made()
        yield
    forget_what_handlers_made()


@pytest.mark.parametrize("sample", [name for name in SAMPLES if "fifo" in name])
def test_a_message_of_the_fifo_queue_has_the_id_that_sqs_makes_of_its_body(sample):
    records = json.loads((ROOT / "events" / f"{sample}.json").read_text())["Records"]
    ids = [record["attributes"]["MessageDeduplicationId"] for record in records]
    bodies = [record["body"].encode() for record in records]
    assert ids == [hashlib.sha256(body).hexdigest() for body in bodies]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_answered_and_only_ids_of_what_its_sender_sent_are_logged(sample, moto, capsys):
    event = json.loads((ROOT / "events" / f"{sample}.json").read_text())
    (name,) = [name for name in function_names() if sample.startswith(name)]
    handler = load_handler(name)
    handler.logger.registered_handler.stream = sys.stdout
    answer = handler.lambda_handler(event, FakeContext(name))
    assert answer.keys() & {"batchItemFailures", "result", "statusCode"}
    if sample == "sweep":
        return  # the schedule's own event, with nothing of anybody's

    output = capsys.readouterr().out
    assert not re.search('"(userId|items|quantity|body|details)":', output)
    lines = [json.loads(line) for line in output.splitlines()]
    logged = {text for line in lines if "_aws" not in line for _, text in leaves(line)}
    assert "Records" not in event or logged & {"batch done", "events published"}
    for secret in filter(None, texts_of(event)):
        word = re.compile(rf"(?<![\w-]){re.escape(secret)}(?![\w-])")
        assert not [text for text in logged if word.search(text)], secret
