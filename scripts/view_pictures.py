"""Take the pictures of `bench view` in README and docs again (`make pictures`, needs Chromium).

Makes runs of reference models in a temporary folder, opens the pages in a real browser, and writes docs/images."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from chromium import Tab, browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
BENCH = str(Path(sys.executable).parent / "bench")
RUNS = [
    ["gsm8k", "-a", "split=sample", "-n", "12", "-r", "5", "-m", "reference/noisy"],
    ["gsm8k", "-a", "split=sample", "-n", "12", "-r", "5", "-m", "reference/oracle"],
    ["tool-test", "-n", "8", "-r", "3", "-m", "reference/noisy"],
]


def main() -> None:
    """Make the runs, open the pages, and write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        ids = [_run(each, folder) for each in RUNS]
        command = [BENCH, "view", "--no-open"]
        with subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            link = server.stdout.readline().strip()
            try:
                with browser() as visit:
                    visit(lambda tab: _pictures(tab, link, ids))
            finally:
                server.terminate()


def _run(arguments: list[str], folder: str) -> str:
    done = subprocess.run([BENCH, "run", *arguments, "--json"], cwd=folder, check=True, capture_output=True, text=True)
    return Path(json.loads(done.stdout)["runs"][0]["path"]).name


async def _pictures(tab: Tab, link: str, ids: list[str]) -> None:
    noisy, oracle, tools = ids
    places = {
        "view-run": (f"#/run/{noisy}?by=parsed", ".examples .dot"),
        "view-compare": (f"#/compare/{noisy},{oracle}", ".dot"),
        "view-rollout": (f"#/run/{tools}/ex/1/2", ".transcript .message"),
    }
    await tab.look(1280, height=860)
    await tab.open(link)
    for name, (place, selector) in places.items():
        await tab.js(f"void (location.hash = {json.dumps(place)})")
        await tab.until(
            f"document.querySelectorAll({json.dumps(selector)}).length > 0 && !document.querySelector('.old, .wait')"
        )
        await asyncio.sleep(0.5)  # fonts and lines that are drawn a moment later
        (IMAGES / f"{name}.png").write_bytes(await tab.screenshot())


if __name__ == "__main__":
    main()
