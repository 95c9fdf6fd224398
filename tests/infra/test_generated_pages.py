"""Generated pages with facts from the stack are up to date."""

import pytest

from docs_generator.pages import FOLDER, NEED_THE_CDK, text_of
from infra.functions import VARIABLES
from infra.stack import OUTPUTS
from tests.support.template import EVERYTHING, resources, synthesise


@pytest.mark.parametrize("page", sorted(NEED_THE_CDK))
def test_a_generated_page_says_what_the_code_says(page):
    assert (FOLDER / page).read_text("utf-8") == text_of(page), "out of date: run `make docs`"


def test_every_output_and_every_environment_variable_has_its_meaning():
    template = synthesise("prod", **EVERYTHING)
    outputs = template.to_json()["Outputs"]
    assert {output["Description"] for output in outputs.values()} == set(OUTPUTS.values())
    functions = resources(template, "AWS::Lambda::Function").values()
    set_here = {
        name
        for function in functions
        for name in function["Properties"].get("Environment", {}).get("Variables", {})
    }
    of_other_settings = {"POWERTOOLS_METRICS_DISABLED", "CUSTOMERS_MAY_SET", "LOCATIONS"}
    of_other_settings |= {"ROLES", "CUSTOMERS_MAY_AMEND", "AMEND_PAID"}
    assert set_here == VARIABLES.keys() - of_other_settings
