"""Commands that deploy the stack to an AWS account, and remove it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.markup import escape

from infra.cdk_json import read_cdk_json
from infra.settings import DEFAULT, Jwt, Settings, SettingsError, check_names
from inventory_orders.naming import stack_name
from local import ROOT, stack
from local.endpoint import environment_without_aws
from local.node import CDK
from local.process import run_logged
from operations import preflight, remains
from operations.account import AwsAccount
from operations.commands.common import AsJson, aside, print_json, screen, table_of
from operations.commands.target import checked_stage
from operations.errors import UserError
from operations.queues import EXPRESS, FIFO

app = typer.Typer()
_ACCOUNT_PANEL = "Your AWS account"
_QUALIFIER = "@aws-cdk/core:bootstrapQualifier"

_ROLLBACK_ALARMS = (
    *("PlaceOrdersErrors", "ChangeOrdersErrors"),
    *("OrderQueueDeadLetters", "OrderCommandQueueDeadLetters"),
)
"""Alarms that turn on if a new version loses or refuses orders and commands: also with `monitoring: basic`."""
_MONITORING_MINUTES = 10
"""The alarms turn on after three minutes at most, plus a few until SQS reports."""

_NOT_VALIDATED = "Online validation could not be completed"
"""How the CDK says that CloudFormation did not check the template."""

_Stage = Annotated[
    str,
    typer.Option(
        "--stage",
        callback=checked_stage,
        help="Name of the deployed stage: 1 to 20 lowercase letters, digits or hyphens.",
    ),
]


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def bootstrap() -> None:
    """Prepare the account and region of your environment for the CDK, once. Running it again changes nothing."""
    account = AwsAccount.of_environment()
    config = cdk_json()
    if _QUALIFIER in config.get("context", {}) and "toolkitStackName" not in config:
        # The CDK would otherwise update the shared stack in place, and replace the roles that other apps deploy with.
        raise UserError(
            f'cdk.json has a {_QUALIFIER}, but no name for its bootstrap stack: set "toolkitStackName" at the top level, '
            'for example to "CDKToolkit-shop"; the stack "CDKToolkit" is shared by all apps in the account and region'
        )
    number = account.number()
    aside.print(f"bootstrap: account {number}, {account.region}")
    # `--app` is empty, because the CDK would otherwise synthesise the stack for this command too.
    _cdk(account, "bootstrap", f"aws://{number}/{account.region}", "--app", "")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def synth(stage: _Stage = "dev") -> None:
    """Write the CloudFormation template of a stage. Needs no account."""
    _settings(stage)
    # The CDK prints advice on its feature flags, and warnings about deployments, which `deploy` prints too.
    run_logged(
        "synth",
        [*CDK, "synth", "--quiet", "-c", f"stage={stage}"],
        stack.cdk_environment(environment_without_aws() | {"AWS_EC2_METADATA_DISABLED": "true"}),
    )
    screen.print(f"{cdk_json().get('output', 'cdk.out')}/{stack_name(stage)}.template.json")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def settings(stage: _Stage = "dev", as_json: AsJson = False) -> None:
    """Show the settings of a stage, each with its source: the default or cdk.json. Needs no account."""
    found = _settings(stage)
    if as_json:
        print_json(
            {name: {"value": v, "from": found.sources[name]} for name, v in found.values.items()}
        )
        return
    rows = [(name, json.dumps(v), found.sources[name]) for name, v in found.values.items()]
    table = table_of(("setting", "value", "from"), rows)
    for row, (_, _, source) in zip(table.rows, rows, strict=True):
        row.style = "dim" if source == DEFAULT else ""
    screen.print(table)


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def diff(stage: _Stage) -> None:
    """Show the changes that `deploy` would make in the AWS account of your environment."""
    _cdk(_account_for("diff", stage), "diff", "-c", f"stage={stage}")


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def validate(stage: _Stage) -> None:
    """Check whether a stage can be deployed to the AWS account of your environment, without deploying it.

    Checks the account's quotas and the issuer of tokens, as `deploy` does. Then CloudFormation checks the template
    against the account: it creates a change set, and deletes it.
    """
    account = _account_for("validate", stage)
    _check(account, _settings(stage))
    done = _run_cdk(
        account,
        *("validate", "--unstable=validate", "-c", f"stage={stage}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    screen.print(done.stdout, markup=False, highlight=False, soft_wrap=True)
    # The CDK succeeds if CloudFormation did not answer.
    if _NOT_VALIDATED in done.stdout:
        raise UserError(
            f"CloudFormation did not check the template of {stack_name(stage)}: the warning above says why. The account "
            "must be prepared first (make bootstrap)"
        )
    if done.returncode:
        raise typer.Exit(done.returncode)


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def deploy(
    stage: _Stage,
    yes: Annotated[
        bool, typer.Option("--yes", help="Deploy without asking about changed permissions. For CI.")
    ] = False,
) -> None:
    """Deploy the stack to the AWS account of your environment.

    It first checks whether the account's quotas and the issuer of tokens allow the settings in cdk.json, and whether the
    stack's first deployment failed earlier.

    CloudFormation rolls back the update of a production stage if one of these alarms turns on during the update or within
    10 minutes: `PlaceOrdersErrors`, `ChangeOrdersErrors`, `OrderQueueDeadLetters`, `OrderCommandQueueDeadLetters`, and
    `Api5xx` (with the setting `jwt`, `CustomerApi5xx`). An invalid message turns them on, too. Alarms that are already
    on do not count, so that you can deploy a fix.
    """
    account = _account_for("deploy", stage)
    settings = _settings(stage)
    _check(account, settings)
    approval = ("--require-approval", "never") if yes else ()
    triggers: tuple[str, ...] = ()
    if settings.is_production:
        _note(preflight.release_failed_creation(account, settings.stack_name))
        triggers = _rollback_triggers(account, settings)
    try:
        _cdk(account, "deploy", "-c", f"stage={stage}", *approval, *triggers)
    except typer.Exit:
        aside.print(f"To see the cause again: make diagnose STAGE={stage}")
        raise


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def diagnose(stage: _Stage) -> None:
    """Show why the last deployment of a stage failed. `deploy` shows it, too."""
    account = _account_for("diagnose", stage)
    _cdk(account, "diagnose", "--unstable=diagnose", "-c", f"stage={stage}")


def _check(account: AwsAccount, settings: Settings) -> None:
    """Check what may prevent a deployment, and print notes on what may limit the stack.

    Raises:
        UserError: The deployment would fail, or would lose orders or refuse every token.
    """
    for queue, is_kept in ((FIFO, settings.fifo_queue), (EXPRESS, settings.api)):
        if not is_kept:
            preflight.check_removed_queue(account, settings.stack_name, queue)
    warm = {name: asdict(units) for name, units in settings.warm_throughput.items()}
    needs = {name: queue.maximumConcurrency for name, queue in settings.queues.items()}
    needs |= _readers(account, settings, warm)
    _note(preflight.check_warm_throughput(account, settings.stack_name, warm))
    _note(
        preflight.check_concurrency(
            account,
            settings.stack_name,
            needs,
            settings.api_limits.requestsPerSecond if settings.api else 0,
            _reserved(settings),
        )
    )
    _note(preflight.check_event_quotas(account, settings.stack_name, warm))
    if settings.api and settings.jwt is not None:
        _check_tokens(account, settings, settings.jwt)


def _check_tokens(account: AwsAccount, settings: Settings, jwt: Jwt) -> None:
    roles = settings.roles or {}
    _note(preflight.check_issuer(jwt.issuer))
    claims = [roles[name] for name in ("claim", "locationsClaim", "nameClaim") if name in roles]
    claims += [jwt.operators_claim[0]] if jwt.operators_claim is not None else []
    _note(preflight.check_claims(account, jwt.issuer, jwt.audience, claims))
    if settings.desk is not None:
        client = settings.desk.client_id
        _note(preflight.check_desk_client(account, settings.stack_name, jwt.issuer, client, claims))


def _reserved(settings: Settings) -> dict[str, int]:
    """List the concurrent executions that settings reserve."""
    of_the_api = settings.api_limits.concurrentExecutions if settings.api else None
    return {
        **({} if of_the_api is None else {preflight.API_RESERVES: of_the_api}),
        **({} if settings.desk is None else {"desk": preflight.DESK_EXECUTIONS}),
    }


def _readers(
    account: AwsAccount, settings: Settings, warm: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Estimate the concurrent executions of each function that reads streams."""
    has_desk = settings.desk is not None
    is_there = {"record_movements": settings.movements or has_desk, preflight.FOR_DESK: has_desk}
    return {
        name: preflight.count_readers(account, settings.stack_name, warm, name)
        for name in preflight.READERS
        if is_there.get(name, True)
    }


def _note(note: str | None) -> None:
    if note is not None:
        aside.print(f"[yellow]Note:[/] {escape(note)}")


def _rollback_triggers(account: AwsAccount, settings: Settings) -> tuple[str, ...]:
    """List the CDK's arguments that make alarms roll back an update. Without them, earlier ones would stay in force."""
    # An alarm that the update removes must not be among them.
    titles = [*_ROLLBACK_ALARMS, *(["Api5xx"] if settings.api else [])]
    if settings.api and settings.jwt is not None:
        titles.insert(0, "CustomerApi5xx")
    arns, note = preflight.find_rollback_triggers(account, settings.stack_name, titles)
    _note(note)
    if arns is None:
        return ()
    minutes = ("--monitoring-time-minutes", str(_MONITORING_MINUTES)) if arns else ()
    return (*(f"--rollback-trigger-alarm-arns={arn}" for arn in arns or ["none"]), *minutes)


@app.command(rich_help_panel=_ACCOUNT_PANEL)
def destroy(stage: _Stage) -> None:
    """Remove the stack from the AWS account of your environment. Asks first, and lists what remains there."""
    account = _account_for("destroy", stage, ask=True)
    try:
        stack_id = remains.stack_id(account, stack_name(stage))
    except (BotoCoreError, ClientError):
        # The CDK's roles may have the access that these credentials lack. If they do not, the CDK prints the error.
        stack_id = None
    _cdk(account, "destroy", "-c", f"stage={stage}", "--force")
    if stack_id is not None:
        _show_what_is_left(account, stack_id)


def _show_what_is_left(account: AwsAccount, stack_id: str) -> None:
    left = list[str]()
    for look, what in (
        (remains.kept, "the tables, queues and logs of a production stage"),
        (remains.copies, "tables that restores created"),
        (remains.exports, "exports, with customers' ids"),
    ):
        try:
            left += look(account, stack_id)
        except (BotoCoreError, ClientError) as error:
            left.append(f"{what}; they cannot be listed: {error}")
    left += [
        "backups that DynamoDB makes of deleted tables, for 35 days",
        "metrics, for 15 months",
        "the bootstrap stack, with the deployed code; other stacks use it too",
    ]
    screen.print("These remain on the account:")
    for one in left:
        screen.print(f"  {one}", markup=False)


def _account_for(command: str, stage: str, *, ask: bool = False) -> AwsAccount:
    """Look up the account of the environment, and print the command, account and region."""
    cdk_json()
    account = AwsAccount.of_environment()
    place = f"{stack_name(stage)} on account {account.number()}, {account.region}"
    if ask:
        typer.confirm(f"{command.capitalize()} {place}?", abort=True)
    else:
        aside.print(f"{command}: {place}")
    return account


def _settings(stage: str) -> Settings:
    """Read the settings that the CDK will use."""
    context = cdk_json().get("context", {})
    try:
        return Settings.from_context(stage, context.get("settings"), context.get("stages"))
    except SettingsError as error:
        raise UserError(str(error)) from None


def cdk_json() -> dict[str, Any]:
    """Read and check cdk.json, before the CDK does: its own messages do not say what to do.

    Raises:
        UserError: It is not valid, or has an unknown name.
    """
    try:
        config = read_cdk_json(ROOT / "cdk.json")
        check_names(config, config.get("context", {}))
    except SettingsError as error:
        raise UserError(str(error)) from None
    return config


def _cdk(account: AwsAccount, *arguments: str) -> None:
    """Run the CDK. If it fails, exit with its status."""
    done = _run_cdk(account, *arguments)
    if done.returncode:
        raise typer.Exit(done.returncode)


def _run_cdk(
    account: AwsAccount, *arguments: str, **options: Any
) -> subprocess.CompletedProcess[str]:
    region = {"AWS_REGION": account.region, "AWS_DEFAULT_REGION": account.region}
    environment = stack.cdk_environment({**os.environ, **region})
    return subprocess.run([*CDK, *arguments], cwd=ROOT, env=environment, check=False, **options)
