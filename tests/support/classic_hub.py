"""The named example datasets of the classic API, a few rows of each on the stand-in Hub, and a child process that loads
them with whatever answers `import verifiers` there. By hand, with the Python of a real release, it writes what that
release makes of them: `python classic_hub.py b/bin/python`."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from classic_server import PACKAGES
from hub_repos import Entry, Hub, Repo
from hub_runs import hub_env
from hub_server import HubServer

EXPECTED = PACKAGES / "expected" / "example_datasets.jsonl"
"""Lines of JSON: name, options, rows."""

LETTERS = "abcdefgh"

CODE = "Solve the following coding problem using the programming language python:"

DATA: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {
    "HuggingFaceH4/aime_2024": {"": {"train": [{"problem": f"p{i}", "answer": f"0{i}"} for i in range(4)]}},
    "opencompass/AIME2025": {
        "AIME2025-I": {"test": [{"question": f"i{i}", "answer": f"{i}0"} for i in range(3)]},
        "AIME2025-II": {"test": [{"question": f"ii{i}", "answer": f"{i}^\\circ"} for i in range(3)]},
    },
    "knoveleng/AMC-23": {"": {"train": [{"problem": f"amc{i}", "answer": f"{i}.0"} for i in range(4)]}},
    "Idavidrein/gpqa": {
        f"gpqa_{kind}": {
            "train": [
                {
                    "Question": f"{kind}{i}", "Correct Answer": f"right{i}", "Incorrect Answer 1": f"one{i}",
                    "Incorrect Answer 2": f"two{i}", "Incorrect Answer 3": f"three{i}",
                }
                for i in range(3)
            ]
        }
        for kind in ("diamond", "main")
    },
    "openai/gsm8k": {
        "main": {
            split: [{"question": f"{split}{i}", "answer": f"So {i}.\n#### {i},000"} for i in range(5)]
            for split in ("train", "test")
        }
    },
    "chiayewken/competition_math": {
        "": {"train": [{"problem": f"m{i}", "solution": f"It is $\\boxed{{\\frac{{{i}}}{{2}}}}$."} for i in range(4)]}
    },
    "HuggingFaceH4/MATH-500": {
        "": {"test": [{"problem": f"h{i}", "solution": "-", "answer": f"\\sqrt{{{i}}}"} for i in range(4)]}
    },
    "cais/mmlu": {
        "all": {
            "dev": [{"question": f"u{i}", "choices": [f"{c}{i}" for c in LETTERS[:4]], "answer": i} for i in range(4)]
        }
    },
    "TIGER-Lab/MMLU-Pro": {
        "": {
            "validation": [
                {"question": f"v{i}", "options": [f"{c}{i}" for c in LETTERS], "answer": "ABCD"[i]} for i in range(4)
            ]
        }
    },
    "allenai/openbookqa": {
        "main": {
            "train": [
                {
                    "question_stem": f"o{i}", "answerKey": "ABCD"[i],
                    "choices": {"text": [f"{c}{i}" for c in LETTERS[:4]], "label": list("ABCD")},
                }
                for i in range(4)
            ]
        }
    },
    "knoveleng/open-rs": {
        "": {"train": [{"problem": f"rs{i}", "answer": str(i), "level": ["Easy", "Hard"][i % 2]} for i in range(6)]}
    },
    "PrimeIntellect/verifiable-coding-problems": {
        "": {
            "train": [
                {"prompt": f"{CODE if i else 'Solve it in Rust:'} c{i}", "verification_info": f"v{i}"} for i in range(4)
            ]
        }
    },
}  # fmt: skip
"""By repository, configuration ("": the only one) and split."""

NAMES = (
    "aime2024", "aime2025", "amc2023", "gpqa_diamond", "gpqa_main", "gsm8k", "math", "math500", "mmlu", "mmlu_pro",
    "openbookqa", "openrs", "openrs_easy", "openrs_hard", "prime_code",
)  # fmt: skip

CALLS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in NAMES),
    ("gsm8k", {"split": "train"}),
    ("gsm8k", {"split": "train", "n": 3}),
    ("openrs", {"n": 4, "seed": 7}),
]

LOAD = """
import json, sys
def load_environment():
    import verifiers as vf
    for name, options in json.loads(sys.argv[1]):
        rows = vf.load_example_dataset(name, **options).to_list()
        print(json.dumps([name, options, rows]))
    return vf.SingleTurnEnv(dataset=vf.load_example_dataset("gsm8k"))
"""


def stock(hub: Hub) -> None:
    """Put all datasets on `hub`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, configs in DATA.items():
        files: dict[str, Entry] = {}
        card = ["---", "configs:"]
        for config, splits in configs.items():
            card += [f"- config_name: {config or 'default'}", "  data_files:"]
            for split, rows in splits.items():
                buffer = io.BytesIO()
                pq.write_table(pa.Table.from_pylist(rows), buffer)
                entry = Entry(buffer.getvalue(), lfs=True)
                hub.large[entry.sha256] = entry.data
                path = f"{config or 'data'}/{split}.parquet"
                files[path] = entry
                card += [f"  - split: {split}", f"    path: {path}"]
        hub.repos[name] = repo = Repo(name, private=False)
        repo.add("rows", {"README.md": Entry("\n".join([*card, "---", ""]).encode()), **files})


def load(python: str, code: str, home: Path, environ: Mapping[str, str] | None = None) -> list[list[Any]]:
    """Name, options and rows of every call, by a child process that runs `code` after `LOAD`."""
    with HubServer() as server:
        stock(server.hub)
        env = {**hub_env(server, home, token=None), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", **(environ or {})}
        (home / "examples_of_old.py").parent.mkdir(parents=True, exist_ok=True)
        (home / "examples_of_old.py").write_text(LOAD, encoding="utf-8")
        done = subprocess.run(
            [python, "-c", code, json.dumps(CALLS)], env={**env, "PYTHONPATH": str(home)}, capture_output=True,
            text=True, timeout=180, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def main(python: str) -> None:
    """Write what a real release makes of the datasets."""
    with tempfile.TemporaryDirectory() as folder:
        found = load(python, "import examples_of_old; examples_of_old.load_environment()", Path(folder))
    EXPECTED.write_text("".join(json.dumps(each) + "\n" for each in found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
