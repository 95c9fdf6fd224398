"""The assets: what the layer and the functions contain."""

import subprocess
import sys

import pytest

from infra import assets
from local import emulator

HERE = f"python{sys.version_info.major}.{sys.version_info.minor}"


def test_the_layer_holds_the_package_its_dependencies_and_nothing_else(monkeypatch):
    layer = assets.layer(HERE)
    packages = {path.name for path in (layer.path / "python").iterdir() if path.is_dir()}
    assert {"inventory_orders", "aws_lambda_powertools", "fastjsonschema"} <= packages
    assert not packages & {"boto3", "botocore", "aws_cdk", "pytest", "moto"}
    assert not list(layer.path.rglob("*.so"))
    assert list(layer.path.rglob("METADATA")), "licences and metadata go along"
    size = sum(path.stat().st_size for path in layer.path.rglob("*") if path.is_file())
    assert size < 8_000_000


def test_the_same_sources_make_the_same_asset():
    assert assets.layer(HERE) == assets.layer(HERE)
    assert assets.layer("python3.12").digest != assets.layer("python3.13").digest


def test_bytecode_does_not_become_stale_by_a_date():
    """Flag 1 without 2 after the magic number: a hash-based pyc that is not checked (PEP 552)."""
    asset = assets.function("place_orders", HERE)
    (compiled,) = asset.path.rglob("*.pyc")
    assert compiled.read_bytes()[4:8] == b"\x01\x00\x00\x00"


def test_the_handler_imports_from_the_assets_alone():
    """The path holds only the layer, the function and the packages of the Lambda runtime."""
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
