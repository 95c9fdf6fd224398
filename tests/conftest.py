"""Fixtures that all tests share."""

import os
from typing import Any

import pytest

import tests.support.environment  # noqa: F401 - drops the caller's AWS settings first

# isort: split
from local import stack as local_stack
from local.emulator import Emulator
from local.endpoint import use_embedded
from operations.aws import Aws
from tests.support.roles import name_batches_as_the_embedded_aws_does


@pytest.fixture(scope="session")
def embedded_aws() -> Any:
    """Start an embedded AWS for the tests, with the stack deployed by the real CDK, and stop it at the end.

    It enforces IAM, so a function can only do what its role allows.
    """
    local_stack.down()
    try:
        running: Emulator = local_stack.up(lambda _: None, enforce_iam=True)
        before = dict(os.environ)
        use_embedded(running.endpoint)
        aws = Aws.of_stack(local_stack.STACK_NAME)
        name_batches_as_the_embedded_aws_does(aws)
        yield aws, running
        os.environ.clear()
        os.environ.update(before)
    finally:
        local_stack.down()
