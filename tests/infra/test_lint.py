"""CloudFormation's linter accepts the template with all optional settings."""

import json

from tests.support.template import EVERYTHING, resources, synthesise


def test_cfn_lint_accepts_the_template():
    # cfn-lint is slow to import, and most processes run other tests.
    from cfnlint.api import ManualArgs, lint

    template = synthesise("prod", **EVERYTHING)
    text = json.dumps(template.to_json())
    findings = lint(text, config=ManualArgs(regions=["us-east-1"]))
    # The CDK makes each function depend on its role's policy, which is needed, and on the role, which the function
    # refers to anyway. The second dependency is redundant but harmless.
    redundant = [
        finding
        for finding in findings
        if finding.rule.id == "W3005"
        and any(
            finding.message.startswith(f"'{role}' dependency already enforced by a 'GetAtt'")
            for role in resources(template, "AWS::IAM::Role")
        )
    ]
    assert [finding for finding in findings if finding not in redundant] == []
    assert len(redundant) == len(resources(template, "AWS::Lambda::Function"))
