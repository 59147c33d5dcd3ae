"""Fetch the browser libraries of `bench view` with `npm pack`, and keep them with version, licence and SHA-256.

    python scripts/vendor_view.py        # or: make vendor

Writes `harness/plugins/view/static/vendor/`: the files, and `packages.json`, which lists them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "harness" / "plugins" / "view" / "static" / "vendor"

LANGUAGES = ("clike", "javascript", "python", "json", "bash", "sql", "c", "cpp", "java", "go", "rust", "diff", "yaml")
"""Languages that Prism colours; one that builds on another stands behind it."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the npm registry."""

    name: str
    version: str
    files: dict[str, str]
    """Names of the kept files, by their path in the package."""


PACKAGES = (
    Package("preact", "11.2.0", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"}),
    Package("htm", "3.1.1", {"dist/htm.module.js": "htm.js"}),
    Package("marked", "18.2.1", {"lib/marked.esm.js": "marked.js"}),
    Package("diff", "9.0.0", {"dist/diff.min.js": "diff.js"}),
    Package(
        "prismjs",
        "1.30.0",
        {f"components/prism-{name}.min.js": f"prism-{name}.js" for name in ("core", *LANGUAGES)},
    ),
)


def fetch(package: Package, folder: Path) -> tuple[str, dict[str, str]]:
    """Download a package.

    Args:
        package: The package.
        folder: An empty folder for the download.

    Returns:
        The licence's name, and the text of each kept file and of the licence, by kept name.
    """
    command = ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    with tarfile.open(folder / done.stdout.split()[-1]) as archive:

        def read(path: str) -> str:
            found = archive.extractfile(f"package/{path}")
            if found is None:
                raise SystemExit(f"{package.name} {package.version} has no file {path}")
            return found.read().decode()

        licence = json.loads(read("package.json"))["license"]
        texts = {kept: _usable(read(path)) for path, kept in package.files.items()}
        return licence, {**texts, f"LICENSE-{package.name}": read("LICENSE")}


def _usable(text: str) -> str:
    """Name modules by their file, as browsers need it without an import map, and drop references to source maps."""
    text = re.sub(r'from\s*"preact"', 'from"./preact.js"', text)
    return re.sub(r"\n?//# sourceMappingURL=\S+\s*$", "\n", text)


def main() -> None:
    """Replace the kept files."""
    TARGET.mkdir(parents=True, exist_ok=True)
    for file in TARGET.iterdir():
        file.unlink()
    listed: list[dict[str, object]] = []
    for package in PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            licence, texts = fetch(package, Path(folder))
        sums: dict[str, str] = {}
        for name, text in texts.items():
            (TARGET / name).write_text(text)
            sums[name] = hashlib.sha256(text.encode()).hexdigest()
        listed.append({"name": package.name, "version": package.version, "license": licence, "sha256": sums})
    (TARGET / "packages.json").write_text(json.dumps(listed, indent=2) + "\n")


if __name__ == "__main__":
    main()
