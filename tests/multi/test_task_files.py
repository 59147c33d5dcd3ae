"""Files of tasks in their three formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import ConfigError, ValidationError
from harness.multi.task_files import load_tasks
from harness.multi.tasks import Task

TASKS = [Task(id="a", prompt="one", expected="1"), Task(id="task-1", prompt="two\u2028", match_mode="exact")]

ARRAY = '[{"id": "a", "prompt": "one", "expected": "1"}, {"prompt": "two\u2028", "matchMode": "exact"}]'

FILES = {
    "array.json": ARRAY,
    "object.JSON": f'{{"tasks": {ARRAY}}}',
    "lines.jsonl": '{"id": "a", "prompt": "one", "expected": "1"}\r\n\n{"prompt": "two\u2028", "match_mode": "exact"}',
    "table.toml": '[[task]]\nid="a"\nprompt="one"\nexpected="1"\n[[task]]\nprompt="two\u2028"\nmatchMode="exact"\n',
    "tables.toml": '[[tasks]]\nid="a"\nprompt="one"\nexpected="1"\n[[tasks]]\nprompt="two\u2028"\nmatch_mode="exact"\n',
}


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("name", FILES)
def test_every_format_is_read(tmp_path: Path, name: str, bom: str) -> None:
    path = tmp_path / name
    path.write_text(bom + FILES[name], encoding="utf-8", newline="")
    assert load_tasks(path) == TASKS
    assert load_tasks(str(path)) == TASKS


def test_a_schema_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "tasks.toml"
    path.write_text(
        "[[task]]\nprompt = 'p'\ntimeoutMs = 5\n[task.schema]\ntype = 'object'\nrequired = ['ok']\n"
        "[task.schema.properties.ok]\ntype = 'boolean'\n"
    )
    [task] = load_tasks(path)
    assert task.schema == {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean"}}}
    assert task.timeout_ms == 5


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("t.json", "[", "t.json: not valid JSON: Expecting value"),
        ("t.json", "5", "t.json: must contain a list of tasks, not 5"),
        ("t.json", "null", "t.json: must contain a list of tasks, not null"),
        ("t.json", '"a"', 't.json: must contain a list of tasks, not "a"'),
        ("t.json", '{"tasks": [], "matchMode": "exact"}', "t.json: matchMode: unknown key; valid here: tasks, task"),
        ("t.json", '{"tasks": {}}', "t.json: tasks: must be a list of tasks"),
        ("t.json", '[{"prompt": "p", "expected": NaN}]', "t.json: not valid JSON: JSON does not allow NaN"),
        ("t.json", '[{"prompt": "p"}, {"prompt": 5}]', "t.json: task 1: prompt = 5: must be a string"),
        ("t.json", "[" * 100_000, "t.json: not valid JSON"),
        (
            "t.json",
            '[{"prompt": "p", "expected": 1, "expected": 2}]',
            "t.json: the key 'expected' occurs twice in an object",
        ),
        (
            "t.jsonl",
            '{"prompt": "p"}\n{"schema": {"a": 1, "a": 1}}',
            "t.jsonl: line 2: the key 'a' occurs twice in an object",
        ),
        ("t.jsonl", '{"prompt": "p"}\n\n{"prompt"', "t.jsonl: line 3: not valid JSON"),
        ("t.jsonl", '{"prompt": "p"}\n[1]', "t.jsonl: task 1: must be a dict or a dataclass, not list"),
        ("t.toml", "[[task]", "t.toml: not valid TOML"),
        ("t.toml", "[[tsks]]\nprompt='p'", 't.toml: tsks: unknown key; did you mean "tasks"?'),
        (
            "t.toml",
            "[[task]]\nprompt='p'\n[[tasks]]\nprompt='p'",
            "t.toml: tasks and task mean the same; keep one of them",
        ),
        ("t.toml", "[task]\nprompt='p'", "t.toml: task: must be a list of tasks"),
        ("t.toml", "[[task]]\nprompt='p'\nmetadata.on = 2026-01-01", "t.toml: task 0: metadata: must be a JSON value"),
        ("t.yaml", "tasks:", "t.yaml: the name of a file with tasks must end in .json, .jsonl, .toml"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_tasks(tmp_path / name)
    assert f"{tmp_path}/" in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("name", "text"), [("t.json", "[]"), ("t.json", "{}"), ("t.jsonl", "\n"), ("t.toml", "task = []")]
)
def test_an_empty_file_has_no_tasks(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValidationError, match=r"t\.\w+: Task list required$"):
        load_tasks(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b'["\xff"]')
    with pytest.raises(ConfigError, match=r"t\.json is not UTF-8 text: "):
        load_tasks(tmp_path / "t.json")


def test_a_file_that_is_not_there_is_guessed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"taks\.json does not exist; its folder has no files of tasks$"):
        load_tasks(tmp_path / "taks.json")
    (tmp_path / "tasks.json").write_text("[]")
    with pytest.raises(ConfigError, match=r'taks\.json does not exist; did you mean ".*/tasks\.json"\?$'):
        load_tasks(tmp_path / "taks.json")
    with pytest.raises(ConfigError, match=r"folder\.json cannot be read: Is a directory$"):
        (tmp_path / "folder.json").mkdir()
        load_tasks(tmp_path / "folder.json")
