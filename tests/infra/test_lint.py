"""CloudFormation's linter accepts the template with all optional settings."""

import json
import subprocess
import sys
from pathlib import Path

from infra.settings import Settings
from tests.support.template import EVERYTHING, resources, synthesise


def test_cfn_lint_accepts_the_template(tmp_path):
    template = synthesise("prod", **EVERYTHING)
    path = tmp_path / "template.json"
    path.write_text(json.dumps(template.to_json()))
    linter = Path(sys.executable).with_name("cfn-lint")
    command = [linter, *("--format", "json", "--regions", "us-east-1", "--", path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    findings = json.loads(done.stdout or "[]")
    # The CDK makes each function depend on its role's policy, which is needed, and on the role, which the function
    # refers to anyway. The second dependency is redundant but harmless.
    redundant = [
        finding
        for finding in findings
        if finding["Rule"]["Id"] == "W3005"
        and any(
            finding["Message"].startswith(f"'{role}' dependency already enforced by a 'GetAtt'")
            for role in resources(template, "AWS::IAM::Role")
        )
    ]
    assert [finding for finding in findings if finding not in redundant] == []
    assert len(redundant) == len(Settings.from_context("dev").functions)
