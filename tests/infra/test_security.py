"""Security of the template: the rules of cdk-nag for AWS solutions, and further rules of our own."""

import re

import pytest

from local import ROOT
from tests.support.template import resources, shared_stack_of, stack_of, synthesise


def findings(stage, **changes):
    # After test_template, which sets how the CDK is to run.
    from cdk_nag import AwsSolutionsChecks

    stack = stack_of(stage, **changes)
    report = AwsSolutionsChecks(stack.node.root).validate_scope(stack)
    return {
        (violation.rule_name, resource.construct_path)
        for violation in report.violations
        for resource in violation.violating_resources
    }


@pytest.mark.parametrize(
    ("stage", "changes"), [("dev", {}), ("prod", {"alarmEmail": "ops@example.com"})]
)
def test_cdk_nag_finds_nothing(stage, changes):
    # It takes a queue for one of dead letters if another queue, or an asynchronous function, has it for that. Of what
    # event source mappings give up it does not know; test_access.py does.
    dead_letters = f"InventoryOrders-{stage}/Queues/UndeliverableEventsQueue/Resource"
    assert findings(stage, **changes) == {("AwsSolutions-SQS3", dead_letters)}


def test_no_rule_of_cdk_nag_is_suppressed():
    """No rule is acknowledged anywhere, and the rules do check the stack."""
    sources = [ROOT / "app.py", *(ROOT / "infra").glob("*.py")]
    assert not [path for path in sources if re.search("acknowledge|cdk_nag", path.read_text())]
    found = {rule for rule, _ in findings("dev", runtime="python3.11")}
    assert found == {"AwsSolutions-L1", "AwsSolutions-SQS3"}


@pytest.fixture(scope="module", params=["dev", "prod"])
def template(request):
    return synthesise(request.param, alarmEmail="ops@example.com")


def statements(template, kind):
    for logical_id, resource in resources(template, kind).items():
        document = resource["Properties"]["PolicyDocument"]
        for statement in document["Statement"]:
            yield logical_id, statement


def test_no_role_has_a_wildcard_for_actions_or_resources(template):
    found = list(statements(template, "AWS::IAM::Policy"))
    assert found
    for logical_id, statement in found:
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            assert "*" not in action, logical_id
        targets = statement["Resource"]
        for target in targets if isinstance(targets, list) else [targets]:
            match target:
                case {"Fn::GetAtt": [_, "Arn" | "StreamArn" | "EventSourceMappingArn"]}:
                    continue
                case {"Ref": str(alias)} if alias in resources(template, "AWS::Lambda::Alias"):
                    continue
                case {
                    "Fn::Join": [
                        "",
                        [
                            {"Fn::GetAtt": [_, "Arn"]},
                            "/index/byExpiry" | "/index/byToFulfil" | "/index/byUser",
                        ],
                    ]
                }:
                    continue
            raise AssertionError(f"{logical_id}: {target} is more than one resource")


@pytest.mark.aws(
    "CloudFormation does not delete a stack with termination protection, nor the rest of one "
    "whose creation failed.",
    "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/using-cfn-protect-stacks.html",
)
def test_production_is_protected_against_deletion():
    # The stacks that the tests before have.
    settings = {"alarmEmail": "ops@example.com"}
    assert shared_stack_of("prod", **settings).termination_protection
    assert not shared_stack_of("dev", **settings).termination_protection
    held = synthesise("prod", **settings).to_json()["Resources"].values()
    tables = [resource for resource in held if resource["Type"] == "AWS::DynamoDB::GlobalTable"]
    assert len(tables) == 4
    assert all(table["UpdateReplacePolicy"] == "Retain" for table in tables)


def test_functions_do_not_log_their_events(template):
    for function in resources(template, "AWS::Lambda::Function").values():
        variables = function["Properties"]["Environment"]["Variables"]
        assert not {name for name in variables if "LOG_EVENT" in name or name == "POWERTOOLS_DEV"}
