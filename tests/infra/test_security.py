"""The template follows the rule pack AwsSolutions of cdk-nag, and the project's own rules."""

import re

from local import ROOT
from tests.support.template import EVERYTHING, resources, shared_stack_of, synthesise


def findings(stage, **changes):
    # Slow to import in every process.
    from cdk_nag import AwsSolutionsChecks

    stack = shared_stack_of(stage, **changes)
    report = AwsSolutionsChecks(stack.node.root).validate_scope(stack)
    return {
        (violation.rule_name, resource.construct_path)
        for violation in report.violations
        for resource in violation.violating_resources
    }


def test_cdk_nag_finds_nothing():
    # cdk-nag recognises the dead-letter queues of queues and asynchronous functions, but not those of event source
    # mappings, which test_access.py covers. Permissions for tracing cannot name a resource.
    found = findings("prod", **EVERYTHING)
    others = {finding for finding in found if finding[0] != "AwsSolutions-IAM5[Resource::*]"}
    queues = ("UndeliverableEventsQueue", "UnrecordedMovementsQueue")
    dead_letters = {f"InventoryOrders-prod/Default/Queues/{name}/Resource" for name in queues}
    # Browsers request the desk's files without a token.
    api = "InventoryOrders-prod/Default/CustomerApi"
    without_token = {f"{api}/{name}" for name in ("GetDesk", "GetDeskFile", "PostDeskReports")}
    assert others == {("AwsSolutions-SQS3", name) for name in dead_letters} | {
        ("AwsSolutions-APIG4", name) for name in without_token
    }


def test_no_rule_of_cdk_nag_is_suppressed():
    """The test also checks that the rules are applied to the stack."""
    sources = [ROOT / "app.py", *(ROOT / "infra").glob("*.py")]
    assert not [path for path in sources if re.search("acknowledge|cdk_nag", path.read_text())]
    found = {rule for rule, _ in findings("dev", runtime="python3.11")}
    assert found == {"AwsSolutions-L1", "AwsSolutions-SQS3"}


def test_functions_do_not_log_their_events():
    template = synthesise("prod", **EVERYTHING)
    for function in resources(template, "AWS::Lambda::Function").values():
        variables = function["Properties"].get("Environment", {}).get("Variables", {})
        assert not {name for name in variables if "LOG_EVENT" in name or name == "POWERTOOLS_DEV"}
