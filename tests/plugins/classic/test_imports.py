"""`import verifiers` in classic packages: for whom it is answered, when, and that nothing is left behind. Each case
loads real files in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

ENV = """
import verifiers as vf
ROWS = [{"question": "?", "answer": "yes"}]
def load_environment(**kwargs):
    return vf.SingleTurnEnv(dataset=ROWS, rubric=vf.Rubric(funcs=[right]), **kwargs)
def right(completion, answer) -> float:
    return float(completion[-1]["content"] == answer)
"""

NEWER = {
    "verifiers/__init__.py": "__version__ = '0.4.0'\n\nclass Taskset: ...\n",
    "verifiers/extra.py": "HERE = 'the newer one'\n",
    "verifiers-0.4.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: verifiers\nVersion: 0.4.0\n",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def run(root: Path, code: str) -> Any:
    """What `code` prints as its last line, in a process that can import what lies in `root`."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=root, capture_output=True, text=True, timeout=60, check=False, env={"PYTHONPATH": str(root), "PATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SCORE = """
import asyncio, json, sys
import harness
from harness.core.records import Example
from harness.core.state import State
from harness.core.types import ModelResponse

class Chat:
    model = "m"
    async def __call__(self, prompt, *, tools=None, sampling_args=None):
        return ModelResponse({"role": "assistant", "content": "yes"}, "stop")

async def reward(env):
    row = env.row(0)
    state = State.begin(Example("k", row.example_id, row.prompt, row.answer, row.task, row.info), 0, "m", {})
    await env.rollout(state, Chat())
    return (await env.rubric.score([state]))[0].reward
"""


def test_a_package_is_answered_without_the_real_one(tmp_path: Path) -> None:
    write(tmp_path, {"kit_alone.py": ENV})
    said = run(
        tmp_path,
        SCORE
        + """
env = harness.load_environment("kit-alone")
print(json.dumps([asyncio.run(reward(env)), sorted(n for n in sys.modules if n.startswith("verifiers"))]))
""",
    )
    assert said == [1.0, []]


@pytest.mark.parametrize("first", [True, False])
def test_a_newer_release_stays_what_it_is(tmp_path: Path, first: bool) -> None:
    write(tmp_path, {**NEWER, "kit_newer.py": ENV})
    said = run(
        tmp_path,
        SCORE
        + f"""
if {first}:
    import verifiers, verifiers.extra
    before = (verifiers, verifiers.extra)
env = harness.load_environment("kit-newer")
import verifiers, verifiers.extra, importlib.metadata
if {first}:
    assert before == (sys.modules["verifiers"], sys.modules["verifiers.extra"])
print(json.dumps([
    asyncio.run(reward(env)), verifiers.__version__, verifiers.extra.HERE, importlib.metadata.version("verifiers"),
    hasattr(verifiers, "SingleTurnEnv"),
]))
""",
    )
    assert said == [1.0, "0.4.0", "the newer one", "0.4.0", False]


def test_a_release_that_has_the_api_is_not_used(tmp_path: Path) -> None:
    marker = "raise RuntimeError('the real one was imported')"
    older = {"verifiers/__init__.py": marker, "verifiers/envs/multiturn_env.py": "", "verifiers/legacy/__init__.py": ""}
    write(tmp_path, {**older, "kit_real.py": ENV})
    assert run(tmp_path, SCORE + 'print(json.dumps(asyncio.run(reward(harness.load_environment("kit-real")))))') == 1.0


@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "import verifiers.v1 as vf",
        "from verifiers.v1 import Taskset",
        "from verifiers import v1",
        "import verifiers.v1.env",
    ],
)
def test_the_newer_api_is_refused_in_words_that_hold_either_way(tmp_path: Path, line: str, installed: bool) -> None:
    real = {"verifiers/__init__.py": "", "verifiers/v1/__init__.py": "Taskset = object", "verifiers/v1/env.py": ""}
    write(tmp_path, {**(real if installed else {}), "kit_v1.py": f"{line}\ndef load_environment(): ..."})
    said = run(
        tmp_path,
        """
    import json, harness
    from harness.core.errors import EnvironmentLoadError
    try:
        harness.load_environment("kit-v1")
    except EnvironmentLoadError as error:
        print(json.dumps(str(error)))
    """,
    )
    assert "verifiers.v1" in said and "not supported" in said and "not installed" not in said


LATE = """
import importlib
import verifiers as vf
from kit_words import WORD
def load_environment():
    return vf.SingleTurnEnv(dataset=[{"question": "?"}], rubric=vf.Rubric(funcs=[late]))
def late(completion) -> float:
    from importlib.metadata import version
    import verifiers.utils.data_utils as data_utils
    from verifiers.types import State
    import kit_late
    assert importlib.import_module("verifiers.types").State is State is kit_late.State
    assert version("verifiers") == vf.__version__ == "%s"
    assert data_utils.extract_boxed_answer("\\\\boxed{4}") == "4"
    return float(hasattr(vf, "UserMessage")) + WORD
"""


def test_two_generations_live_side_by_side_and_import_late(tmp_path: Path) -> None:
    for folder, version, number in (("one", "0.1.9.post3", 10), ("two", "0.1.14", 20)):
        write(tmp_path / folder, {
            f"kit_{folder}.py": LATE.replace("kit_words", f"kit_{folder}_words").replace("kit_late", f"late_{folder}")
            % version,
            f"kit_{folder}_words.py": f"import verifiers as vf\nWORD = {number} + isinstance(vf.Error(), Exception)",
            f"late_{folder}.py": "from verifiers.types import State",
            "pyproject.toml": f'[project]\nname = "kit-{folder}"\ndependencies = ["verifiers=={version}"]',
        })  # fmt: skip
    said = run(
        tmp_path,
        SCORE
        + """
envs = [harness.load_environment(f"./{name}/kit_{name}.py") for name in ("one", "two")]
async def both():
    return [await reward(env) for env in (*envs, *reversed(envs))]
print(json.dumps([asyncio.run(both()), [n for n in sys.modules if n.startswith("verifiers")]]))
""",
    )
    assert said == [[11.0, 22.0, 22.0, 11.0], []]


def test_a_package_that_was_imported_before_is_imported_anew(tmp_path: Path) -> None:
    write(
        tmp_path, {**NEWER, "kit_seen/__init__.py": "from kit_seen.env import load_environment", "kit_seen/env.py": ENV}
    )
    said = run(
        tmp_path,
        SCORE
        + """
import kit_seen.env
old = kit_seen.env.vf.__version__
env = harness.load_environment("kit-seen")
again = harness.load_environment("kit-seen")
print(json.dumps([old, sys.modules["kit_seen.env"].vf.__version__, asyncio.run(reward(env)), type(env) is type(again)]))
""",
    )
    assert said == ["0.4.0", "0.1.9.post3", 1.0, True]


def test_a_library_that_needs_the_api_is_answered_too(tmp_path: Path) -> None:
    write(tmp_path, {
        "kit_thin.py": "from kit_lib.envs import load_environment",
        "kit_thin-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: kit-thin\nVersion: 1\nRequires-Dist: kit-lib\n",
        "kit_thin-1.dist-info/RECORD": "kit_thin.py,,\n",
        "kit_lib/__init__.py": "",
        "kit_lib/envs.py": ENV,
        "kit_lib-1.dist-info/METADATA": (
            "Metadata-Version: 2.1\nName: kit-lib\nVersion: 1\nRequires-Dist: verifiers>=0.1.11\n"
        ),
        "kit_lib-1.dist-info/RECORD": "kit_lib/__init__.py,,\nkit_lib/envs.py,,\n",
    })  # fmt: skip
    said = run(
        tmp_path,
        SCORE
        + """
env = harness.load_environment("kit-thin")
print(json.dumps([asyncio.run(reward(env)), sys.modules["kit_lib.envs"].vf.__version__]))
""",
    )
    assert said == [1.0, "0.1.14"]


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    write(tmp_path, {
        "kit_typo.py": "import verifiers as vf\ndef load_environment(): return vf.SingelTurnEnv()",
        "kit_other.py": "import verifiers as vf\ndef load_environment(): vf.UserMessage(content='')",
        "kit_gone.py": "import verifiers.trainers.grpo\ndef load_environment(): ...",
        "kit_train.py": "import verifiers as vf\ndef load_environment(): return vf.GRPOTrainer()",
        "pyproject.toml": '[project]\nname = "kit"\ndependencies = ["verifiers==0.1.9"]',
    })  # fmt: skip
    said = run(
        tmp_path,
        """
    import json, harness
    from harness.core.errors import EnvironmentLoadError
    def words(name):
        try:
            harness.load_environment(name)
        except EnvironmentLoadError as error:
            return str(error)
    print(json.dumps([words(f"kit_{name}") for name in ("typo", "other", "gone", "train")]))
    """,
    )
    assert "did you mean 'SingleTurnEnv'?" in said[0]
    assert "verifiers 0.1.14 has it" in said[1]
    assert "verifiers.trainers" in said[2]
    assert "vf.GRPOTrainer is not supported by bench: it trains models" in said[3]


def test_nobody_else_sees_anything_of_it(tmp_path: Path) -> None:
    asking = """
        def found():
            try:
                import verifiers
            except ImportError:
                return False
            return True
        AT_ONCE = found()
    """
    write(tmp_path, {"kit_classic.py": ENV, "kit_outside.py": asking})
    said = run(
        tmp_path,
        """
    import builtins, json, harness
    before = builtins.__import__
    harness.load_environment("kit-classic")
    import kit_outside
    print(json.dumps([kit_outside.AT_ONCE, kit_outside.found(), before is builtins.__import__]))
    """,
    )
    assert said == [False, False, True]
