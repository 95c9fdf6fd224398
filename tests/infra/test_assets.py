"""The contents of the layer's and the functions' assets."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from aws_cdk.assertions import Annotations, Match

from infra import assets
from local import emulator, stack
from operations.errors import UserError
from tests.support.template import shared_stack_of, stack_of

HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"


def test_the_layer_holds_the_package_its_dependencies_and_nothing_else():
    layer = assets.layer(HERE)
    packages = {path.name for path in (layer.path / "python").iterdir() if path.is_dir()}
    assert {"inventory_orders", "aws_lambda_powertools", "biip", "fastjsonschema"} <= packages
    assert not packages & {"boto3", "botocore", "aws_cdk", "pytest", "moto"}
    assert not [path for kind in ("so", "js", "css") for path in layer.path.rglob(f"*.{kind}")]
    assert list(layer.path.rglob("METADATA")), "licences and metadata are included"
    size = sum(path.stat().st_size for path in layer.path.rglob("*") if path.is_file())
    # biip takes 0.5 MB for the prefixes of companies and the application identifiers.
    assert size < 4_300_000


@pytest.mark.parametrize("umask", [0o077, 0o000], ids=oct)
def test_lambda_may_read_every_file_whatever_the_umask(umask, tmp_path):
    before = os.umask(umask)
    try:
        asset = assets.function("place_orders", HERE, tmp_path / "assets")
    finally:
        os.umask(before)
    assert asset.digest == assets.function("place_orders", HERE).digest
    assert asset.digest != assets.function("place_orders", "python3.9").digest
    assert list(asset.path.rglob("*.pyc"))
    modes = {
        (path.is_dir(), oct(path.stat().st_mode & 0o7777))
        for path in (asset.path, *asset.path.rglob("*"))
    }
    assert modes <= {(True, "0o755"), (False, "0o644")}


@pytest.fixture
def build_of(tmp_path, monkeypatch):
    """Return a function that builds an asset from the files of a given folder."""

    def build(folder, interpreter=None):
        monkeypatch.setattr(assets, "_interpreter", lambda runtime: interpreter)
        return assets._build("sample", HERE, assets.sources(folder), tmp_path / "assets")

    return build


def sample(folder, content="pass\n", name="a.py"):
    folder.mkdir()
    (folder / name).write_bytes(content.encode())
    return folder


def test_date_mode_and_link_of_a_source_make_no_difference(build_of, tmp_path):
    first = sample(tmp_path / "first")
    elsewhere = sample(tmp_path / "elsewhere") / "a.py"
    elsewhere.chmod(0o755)
    os.utime(elsewhere, (0, 0))
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.py").symlink_to(elsewhere)
    asset = build_of(other)
    assert build_of(first) == asset
    assert not (asset.path / "a.py").is_symlink()
    assert (asset.path / "a.py").stat().st_mode & 0o7777 == 0o644


def test_every_input_of_an_asset_is_part_of_its_digest(build_of, tmp_path):
    one = sample(tmp_path / "one")
    digests = [
        build_of(one).digest,
        build_of(one, sys.executable).digest,
        build_of(sample(tmp_path / "content", "pass\r\n")).digest,
        build_of(sample(tmp_path / "name", name="b.py")).digest,
    ]
    assert len(set(digests)) == len(digests)


def test_machines_whose_interpreters_differ_in_the_patch_version_make_the_same_asset(
    tmp_path, monkeypatch
):
    """Bytecode is the same for all patch versions of a minor version (PEP 3147), so all machines make the same asset."""
    folder, digests = sample(tmp_path / "source"), set()
    for version in ("3.13.0", "3.13.9"):
        interpreter = tmp_path / version / "python3.13"
        interpreter.parent.mkdir()
        interpreter.write_text(
            f'#!/bin/sh\n[ "$1" = -c ] && echo {version} || exec {sys.executable} "$@"\n'
        )
        interpreter.chmod(0o755)
        monkeypatch.setattr(
            os, "get_exec_path", lambda interpreter=interpreter: [interpreter.parent]
        )
        monkeypatch.setattr(assets.sys, "executable", str(interpreter))
        assets._interpreter.cache_clear()
        target = tmp_path / f"assets-{version}"
        asset = assets._build("sample", "python3.13", assets.sources(folder), target)
        assert asset.compiled
        digests.add(asset.digest)
    assets._interpreter.cache_clear()
    assert len(digests) == 1


def test_a_missing_interpreter_is_reported_when_the_layer_is_not_compiled(monkeypatch):
    layer = replace(assets.layer(HERE), compiled=False)
    compiled = shared_stack_of("dev", runtime=HERE)
    monkeypatch.setattr(assets, "layer", lambda *_: layer)
    # Compared in Node: jsii cannot always convert warnings to Python (github.com/aws/aws-cdk/issues/33211).
    words = Match.string_like_regexp("has no python3.14, so the code is deployed without bytecode")
    Annotations.from_stack(stack_of("dev")).has_warning("*", words)
    words = Match.string_like_regexp("without bytecode")
    Annotations.from_stack(compiled).has_no_warning("*", words)


def test_assets_that_were_not_used_for_long_are_deleted(build_of, tmp_path):
    old, used, unused, other = (
        build_of(sample(tmp_path / name, f"{name} = 1\n")).path
        for name in ("old", "used", "unused", "other")
    )
    for asset in (used, unused):
        os.utime(asset, (0, 0))
    assert build_of(tmp_path / "used").path == used
    other = other.rename(other.with_name(other.name.replace("sample-", "sample-of-another-")))
    os.utime(other, (0, 0))
    new = build_of(sample(tmp_path / "new", "new = 1\n")).path
    assert set(new.parent.iterdir()) == {old, used, other, new}


def test_bytecode_does_not_depend_on_dates():
    """In a pyc file, flag 1 without 2 after the magic number means that it is hash-based and unchecked (PEP 552)."""
    asset = assets.function("place_orders", HERE)
    (compiled,) = asset.path.rglob("*.pyc")
    assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00"


def test_the_handler_imports_from_the_assets_alone():
    """The path includes only the layer, the function and the packages of the Lambda runtime."""
    layer, function = assets.layer(HERE), assets.function("place_orders", HERE)
    emulator.install()
    site = emulator.VENV / "lib" / HERE / "site-packages"
    program = (
        f"import sys; sys.path[:0] = [{str(layer.path / 'python')!r}, {str(function.path)!r}, {str(site)!r}]; "
        "import handler; print(handler.lambda_handler.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "lambda_handler\n", done.stderr


def test_pins_for_other_versions_of_python_are_left_out(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("old==1.0 ; python_full_version < '3.12' \\\n    --hash=x\nboth==2.0 \\\n")
    assert assets.pinned(file, "python3.11") == {"old": "1.0", "both": "2.0"}
    assert assets.pinned(file, "python3.13") == {"both": "2.0"}


def test_the_error_for_a_missing_distribution_names_it_with_advice():
    with pytest.raises(assets.AssetError, match=r"no-such-thing 1\.0 is not installed; run `pip"):
        assets._installed("no-such-thing", "1.0")


def test_the_embedded_aws_synthesises_the_same_inputs_once(tmp_path, monkeypatch):
    runs = []

    def synthesise(name, command, environment):
        runs.append(name)
        Path(command[command.index("--output") + 1]).mkdir()
        if len(runs) == 1:
            raise UserError("it failed half way")

    monkeypatch.setattr(stack, "_ASSEMBLIES", tmp_path / "assemblies")
    monkeypatch.setattr(stack, "run_logged", synthesise)
    with pytest.raises(UserError):
        stack._synthesise({})
    assembly = stack._synthesise({})
    assert stack._synthesise({}) == assembly
    assert assembly.is_dir()
    assert len(runs) == 2
    monkeypatch.setattr(stack, "_fingerprint", lambda: "of other inputs")
    assert stack._synthesise({}) != assembly
    assert len(runs) == 3
    assert not assembly.is_dir(), "templates of old sources are deleted"


def test_a_dependency_that_was_changed_by_hand_makes_another_layer(monkeypatch, tmp_path):
    files_of = assets._files_of
    changed = sample(tmp_path / "changed", "raise SystemExit\n", "__init__.py") / "__init__.py"

    def with_another_file(found, prefix):
        return {
            place: changed if place == "python/jmespath/__init__.py" else path
            for place, path in files_of(found, prefix).items()
        }

    before = assets.layer(HERE).digest
    monkeypatch.setattr(assets, "_files_of", with_another_file)
    assert assets.layer(HERE, tmp_path / "assets").digest != before
