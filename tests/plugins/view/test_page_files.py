"""Files of the pages: libraries are the recorded ones, nothing comes from elsewhere, and all of it is small."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import harness

STATIC = Path(harness.__file__).parent / "plugins" / "view" / "static"
VENDOR = STATIC / "vendor"
OURS = sorted([*STATIC.glob("*.*"), *STATIC.glob("js/*.js")])

GZIPPED_BYTES = 250_000


def test_libraries_are_the_recorded_ones_with_their_licences() -> None:
    packages = json.loads((VENDOR / "packages.json").read_text())
    recorded = {name: digest for package in packages for name, digest in package["sha256"].items()}
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in VENDOR.iterdir()}
    del there["packages.json"]
    assert there == recorded
    for package in packages:
        assert package["version"] and package["license"]
        assert f"LICENSE-{package['name']}" in package["sha256"]


def test_scripts_and_styles_are_small() -> None:
    files = [*OURS, *VENDOR.glob("*.js")]
    assert sum(len(gzip.compress(file.read_bytes())) for file in files) <= GZIPPED_BYTES


def test_pages_name_no_address_outside() -> None:
    for file in OURS:
        found = set(re.findall(r"(?:https?:|[\"'`(])//[\w.-]+\.\w+", re.sub(r"(?m)^\s*//.*$", "", file.read_text())))
        assert found <= {"http://www.w3.org"}, file


def test_pages_never_make_markup_of_text() -> None:
    for file in OURS:
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", file.read_text()
        )


def test_every_module_that_is_imported_is_there() -> None:
    for file in STATIC.glob("js/*.js"):
        for name in re.findall(r'from "([^"]+)"', file.read_text()):
            assert (file.parent / name).is_file(), (file, name)
    for name in re.findall(r'(?:src|href)="([^"]+)"', (STATIC / "index.html").read_text()):
        assert (STATIC / name).is_file(), name
