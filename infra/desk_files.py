"""Builds the files of the desk: one script and one style sheet for all pages, with digests in their names.

On a stack, a function serves them. Its answers are composed here, too, so it does not need to know anything about files.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .assets import ROOT, AssetError
from .settings import Desk

PAGE = "page.html"
"""The only page, which loads the other files."""

_SOURCES = ROOT / "local" / "desk" / "page"
_MODULES = ROOT / "node_modules"
_DATA = Path(__file__).resolve().parent / "data" / "desk"
"""The built files in an installed package, copied there by `wheel.py`."""
# The page and the manifest name the other files, so they come last.
_STATIC = ("icon.svg", "icon-192.png", "icon-512.png", "manifest.webmanifest", PAGE)
_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}
_COMPRESSED = {".png"}
_CONFIG = b'<script id="config" type="application/json"></script>'

_POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self'; manifest-src 'self'; "
    "connect-src 'self' {issuer}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; report-uri reports"
)
_HEADERS = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class DeskFile:
    """A file of the desk, ready to send.

    Attributes:
        headers: The headers that describe it: its type, encoding, and how long it may be cached.
        content: Its bytes, in that encoding.
    """

    headers: dict[str, str]
    content: bytes


def desk_files(config: Mapping[str, Any]) -> dict[str, DeskFile]:
    """Return the files of the desk by name. Except for `PAGE`, each has a digest in its name, and never changes.

    Args:
        config: What the page tells its script: where the API is, and how staff sign in.

    Raises:
        AssetError: They cannot be built, or this package was built without them. The message says what to do.
    """
    # In a page, `</script>` would end the element, whatever surrounds it.
    said = json.dumps(config).replace("<", "\\u003c").encode()
    files = {**built()}
    files[PAGE] = files[PAGE].replace(_CONFIG, _CONFIG.replace(b"></", b">" + said + b"</"))
    return {name: _sent(name, content) for name, content in files.items()}


@cache
def built() -> dict[str, bytes]:
    """Return the content of the desk's files by name, as they are in the package or as the sources are now.

    Raises:
        AssetError: As above.
    """
    if not _SOURCES.is_dir():
        if not _DATA.is_dir():
            raise AssetError("this package was built without the desk: build it with `make wheel`")
        return {path.name: path.read_bytes() for path in _DATA.iterdir()}
    files = _bundles()
    names = {re.sub(r"-[0-9A-Z]{8}\.", ".", name): name for name in files}
    for source in _STATIC:
        content = (_SOURCES / source).read_bytes()
        for name, hashed in names.items():
            content = content.replace(f'"{name}"'.encode(), f'"{hashed}"'.encode())
        names[source] = _hashed(source, content)
        files[names[source]] = content
    return files


def can_build() -> bool:
    """Whether the tools to build the files are installed here."""
    return _esbuild() is not None


def run_esbuild(*arguments: str) -> str:
    """Run esbuild in the folder of the sources, and return what it prints.

    Raises:
        AssetError: It is not installed, or fails.
    """
    esbuild = _esbuild()
    if esbuild is None:
        raise AssetError(f"esbuild is not in {_MODULES}: run `npm ci`, or `make setup`")
    done = subprocess.run(
        [esbuild, *arguments, "--log-level=error"],
        cwd=_SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssetError(f"the desk cannot be built: {done.stderr.strip()}")
    return done.stdout


def _bundles() -> dict[str, bytes]:
    """Bundle all scripts into one, and all style sheets into another. The decoder of the camera is a file of its own."""
    with tempfile.TemporaryDirectory() as out:
        options = ("--bundle", "--minify", "--format=esm", "--entry-names=[name]-[hash]")
        assets = ("--loader:.wasm=file", "--asset-names=[name]-[hash]")
        run_esbuild("app.js", "../decoder.js", "page.css", *options, *assets, f"--outdir={out}")
        return {path.name: path.read_bytes() for path in Path(out).iterdir()}


def _esbuild() -> Path | None:
    """Find the program for this platform. Its package is the only one of its kind that npm installs."""
    return next(_MODULES.glob("@esbuild/*/bin/esbuild"), None)


def _hashed(name: str, content: bytes) -> str:
    if name == PAGE:
        return name
    path = Path(name)
    return f"{path.stem}-{hashlib.sha256(content).hexdigest()[:8].upper()}{path.suffix}"


# Compressing all files takes longer than most tests of the desk.
@cache
def _sent(name: str, content: bytes) -> DeskFile:
    suffix = Path(name).suffix
    cached = "no-store" if name == PAGE else "public, max-age=31536000, immutable"
    headers = {"Content-Type": _KINDS[suffix], "Cache-Control": cached}
    if suffix in _COMPRESSED:
        return DeskFile(headers, content)
    return DeskFile(headers | {"Content-Encoding": "gzip"}, gzip.compress(content, mtime=0))


def answers(desk: Desk, issuer: str) -> dict[str, dict[str, Any]]:
    """Compose the answer for each file of the desk, as API Gateway expects it from a function.

    Raises:
        AssetError: The files cannot be built, or this package was built without them.
    """
    token = urlsplit(desk.token)
    headers = _HEADERS | {
        "Content-Security-Policy": _POLICY.format(issuer=f"{token.scheme}://{token.netloc}")
    }
    if desk.domain is not None:
        headers["Strict-Transport-Security"] = "max-age=31536000"
    return {
        name: {
            "statusCode": 200,
            "headers": headers | file.headers,
            "body": base64.b64encode(file.content).decode(),
            "isBase64Encoded": True,
        }
        for name, file in desk_files(_config(desk, issuer)).items()
    }


def _config(desk: Desk, issuer: str) -> dict[str, Any]:
    sign_in = {
        "issuer": issuer,
        "clientId": desk.client_id,
        "authorize": desk.authorize,
        "token": desk.token,
        "signOut": desk.sign_out,
        "scope": desk.scope,
    }
    return {"desk": "hosted", "api": "..", "signIn": sign_in}


def answers_file(desk: Desk, issuer: str, folder: Path) -> Path:
    """Write the answers to a file in this folder, for the code of the function."""
    content = json.dumps(answers(desk, issuer)).encode()
    path = folder / f"desk-{hashlib.sha256(content).hexdigest()[:16]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
