"""The files of the desk: few and small, with digests in their names, and none is missing."""

import gzip
import json
import re

import pytest

from infra import desk_files as building
from infra.assets import AssetError
from infra.desk_files import PAGE, desk_files

FIRST_LOAD_REQUESTS = 8
FIRST_LOAD_BYTES = 150_000


def read(name):
    file = desk_files({})[name]
    is_compressed = file.headers.get("Content-Encoding") == "gzip"
    return (gzip.decompress(file.content) if is_compressed else file.content).decode()


def test_the_first_load_takes_few_requests_and_few_bytes():
    named = re.findall(r'(?:href|src)="([^"]+)"', read(PAGE))
    files = desk_files({})
    assert named
    assert {*named} <= files.keys(), "the page names a file that does not exist"
    assert 1 + len(named) <= FIRST_LOAD_REQUESTS
    assert sum(len(files[name].content) for name in (PAGE, *named)) <= FIRST_LOAD_BYTES


def test_a_file_is_cached_forever_only_if_its_name_changes_with_its_content(monkeypatch):
    before = desk_files({})
    for name, file in before.items():
        is_hashed = re.search(r"-[0-9A-Z]{8}\.", name) is not None
        assert is_hashed == ("immutable" in file.headers["Cache-Control"]) == (name != PAGE)
    assert before[PAGE].headers["Cache-Control"] == "no-store"
    building.built.cache_clear()
    assert desk_files({}) == before, "the same sources give the same files"
    monkeypatch.setattr(building, "_bundles", lambda: {"app-00000000.js": b"x"})
    building.built.cache_clear()
    assert 'src="app-00000000.js"' in read(PAGE)
    building.built.cache_clear()


def test_what_the_page_tells_its_script_cannot_end_its_element():
    page = gzip.decompress(desk_files({"a": "</script><script>"})[PAGE].content).decode()
    assert page.count("</script>") == 2
    assert r'{"a": "\u003c/script>\u003cscript>"}' in page


def test_a_phone_can_install_the_desk():
    (name,) = (name for name in desk_files({}) if name.endswith(".webmanifest"))
    manifest = json.loads(read(name))
    assert (manifest["start_url"], manifest["display"]) == (PAGE, "standalone")
    icons = {icon["sizes"]: icon["src"] for icon in manifest["icons"]}
    assert icons.keys() == {"any", "192x192", "512x512"}
    assert {*icons.values()} <= desk_files({}).keys()


def test_an_error_says_what_to_do(monkeypatch, tmp_path):
    with pytest.raises(AssetError, match=r"cannot be built: .*missing\.js"):
        building.run_esbuild("missing.js")
    monkeypatch.setattr(building, "_MODULES", tmp_path)
    assert not building.can_build()
    with pytest.raises(AssetError, match="run `npm ci`, or `make setup`"):
        building.run_esbuild()
    monkeypatch.setattr(building, "_SOURCES", tmp_path / "none")
    monkeypatch.setattr(building, "_DATA", tmp_path / "none")
    building.built.cache_clear()
    with pytest.raises(AssetError, match="built without the desk: build it with `make wheel`"):
        desk_files({})
    building.built.cache_clear()
