"""How models are given: names, dicts, dataclasses, files; what they are called, and what of them is stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tables import for_each_row

from harness.core.errors import ConfigError, ValidationError
from harness.multi.models import Model, load_models, numbered, read_model, read_models

FULL: dict[str, Any] = {
    "id": "fast",
    "provider": "openai",
    "modelId": "gpt-4.1-mini",
    "baseUrl": "http://localhost:1/v1",
    "apiKey": "the-key",
    "apiKeyVar": "MY_KEY",
    "headers": {"X-Team": "blue", "Authorization": "Bearer secret"},
    "samplingArgs": {"top_p": 0.5},
    "temperature": 0.5,
    "maxTokens": 9,
    "rpm": 60,
    "tpm": 1000,
    "maxConcurrent": 3,
    "price": {"input": 1.0, "output": 2.0},
}


def test_every_field_in_both_spellings() -> None:
    snake = {
        "id": "fast", "provider": "openai", "model_id": "gpt-4.1-mini", "base_url": "http://localhost:1/v1",
        "api_key": "the-key", "api_key_var": "MY_KEY", "headers": FULL["headers"], "sampling_args": {"top_p": 0.5},
        "temperature": 0.5, "max_tokens": 9, "rpm": 60, "tpm": 1000, "max_concurrent": 3, "price": FULL["price"],
    }  # fmt: skip
    expected = Model(**snake)
    assert read_model(FULL, "models[0]") == expected
    assert read_model(snake, "models[0]") == expected
    assert read_model(expected, "models[0]") == expected


@for_each_row(
    ("name", "field"),
    [("endpoint", "base_url"), ("url", "base_url"), ("api_base_url", "base_url"), ("model", "model_id"),
     ("key", "api_key_var")],
)  # fmt: skip
def test_the_names_that_registry_and_settings_have_will_do(name: str, field: str) -> None:
    assert getattr(read_model({"id": "m", name: "http://x/v1"}, "m"), field) == "http://x/v1"


def test_what_is_stored_has_no_key_and_no_secret_header() -> None:
    config = read_model(FULL, "m").to_config()
    assert config == {
        **{name: value for name, value in FULL.items() if name != "apiKey"}, "headers": {"X-Team": "blue"},
    }  # fmt: skip
    assert read_model("reference/oracle", "m").to_config() == {"id": "reference/oracle"}
    assert "the-key" not in repr(read_model(FULL, "m"))
    assert "secret" not in repr(read_model(FULL, "m"))


@for_each_row(
    ("given", "label", "name"),
    [
        ({"id": "a", "modelId": "b", "provider": "openai"}, "a", "b"),
        ({"modelId": "b", "provider": "openai"}, "b", "b"),
        ({"id": "a", "provider": "openai"}, "a", "a"),
        ("a", "a", "a"),
        ({"id": "a", "model_id": None}, "a", "a"),
    ],
)
def test_what_a_model_is_called_and_asked_for_by(given: Any, label: str, name: str) -> None:
    model = read_model(given, "m")
    assert (model.label, model.name) == (label, name)


def test_one_that_says_nothing_is_called_unknown() -> None:
    assert Model().label == "unknown"
    assert Model(provider="openai").label == "openai"


def test_runs_of_one_label_get_names_of_their_own() -> None:
    labels = ["a", "b", "a", "a", "a[2]", "a"]
    assert numbered(labels) == ["a", "b", "a[3]", "a[4]", "a[2]", "a[5]"]


@for_each_row(
    ("value", "words"),
    [
        (7, r"^models\[1\]: must be a dict or a dataclass, not int$"),
        ({7: 1}, r"^models\[1\]: unknown key 7; valid here"),
        ({"id": 7}, r"^models\[1\]: id = 7: must be a string$"),
        ({"id": "a", "apiKey": 12345678}, r"^models\[1\]: apiKey: must be a string$"),
        ({"id": "a", "headers": "X: y"}, r"^models\[1\]: headers: must be a table of keys and values$"),
        ({"id": "a", "temperature": "hot"}, r'^models\[1\]: temperature = "hot": must be a finite number$'),
        ({"id": "a", "maxTokens": True}, r"^models\[1\]: maxTokens = true: must be an integer$"),
        ({"id": "a", "temprature": 1}, "models\\[1\\]: unknown key 'temprature'; did you mean \"temperature\"\\?$"),
        ({"id": "a", "url": "x", "endpoint": "y"}, "'endpoint' means the same as 'url'; keep one of them$"),
        ({"id": ""}, r"^models\[1\]: the model has no name; give it a modelId, or an id that is the model's name$"),
        ({"id": "a\nb"}, r"must not contain control characters$"),
        ("", r"^models\[1\]: the model has no name"),
    ],
)
def test_what_is_wrong_with_a_model_is_said_with_its_place(value: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_models(["fine", value])


@dataclass
class Theirs:
    id: str
    modelId: str | None = None
    temperature: float | None = None


def test_a_dataclass_of_the_callers() -> None:
    assert read_models([Theirs("a"), Theirs("b", "c", 0.0)]) == (Model("a"), Model("b", model_id="c", temperature=0.0))


FILES = {
    "models.toml": '[[model]]\nid = "a"\nmodel_id = "b"\n[[model]]\nid = "c"\ntemperature = 0.5\n',
    "plural.toml": '[[models]]\nid = "a"\nmodelId = "b"\n[[models]]\nid = "c"\ntemperature = 0.5\n',
    "names.toml": 'models = ["a"]\n',
    "array.json": '[{"id": "a", "modelId": "b"}, {"id": "c", "temperature": 0.5}]',
    "object.json": '\ufeff{"models": [{"id": "a", "modelId": "b"}, {"id": "c", "temperature": 0.5}]}',
    "lines.jsonl": '{"id": "a", "modelId": "b"}\n\n{"id": "c", "temperature": 0.5}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_models(name: str, workplace: Path) -> None:
    (workplace / name).write_text(FILES[name], encoding="utf-8")
    expected = (Model("a"),) if name == "names.toml" else (Model("a", model_id="b"), Model("c", temperature=0.5))
    assert load_models(Path(name)) == expected
    assert read_models(name) == expected
    assert read_models(workplace / name) == expected


def test_a_line_of_a_file_ends_at_a_newline_alone(workplace: Path) -> None:
    (workplace / "m.jsonl").write_text(
        '{"id": "a", "samplingArgs": {"stop": "\u2028"}}\r\n{"id": "b"}', encoding="utf-8"
    )
    assert load_models(Path("m.jsonl")) == (Model("a", sampling_args={"stop": "\u2028"}), Model("b"))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("m.toml", "[[model]]\nid = ", r"^m\.toml: not valid TOML: "),
        ("m.json", "[", r"^m\.json: not valid JSON: "),
        ("m.jsonl", "{}\n{", r"^m\.jsonl: line 2: not valid JSON: "),
        ("m.json", '{"modles": []}', r'^m\.json: modles: unknown key; did you mean "models"\?$'),
        ("m.toml", "[model]\nid = 'a'\n", r"^m\.toml: model: must be a list of models$"),
        ("m.toml", "[[endpoint]]\nurl = 'x'\n", r"^m\.toml: endpoint: unknown key; valid here: models, model$"),
        ("m.json", '{"model": ["a"], "models": ["b"]}', r"^m\.json: models and model mean the same; keep one of them$"),
        ("m.toml", '[[model]]\nid = "a"\n[[model]]\nidd = "b"\n', r"^m\.toml: model\[1\]: unknown key 'idd'; "),
        ("m.json", "7", r"^m\.json: must contain a list of models, not 7$"),
        ("m.json", '[{"id": "a", "nan": NaN}]', r"^m\.json: not valid JSON: JSON does not allow NaN"),
    ],
)
def test_a_file_that_is_wrong(name: str, text: str, words: str, workplace: Path) -> None:
    (workplace / name).write_text(text)
    with pytest.raises(ConfigError, match=words):
        load_models(Path(name))


def test_a_file_that_is_not_there_or_of_another_kind(workplace: Path) -> None:
    with pytest.raises(ConfigError, match=r"^none\.toml does not exist; its folder has no files of models$"):
        load_models(Path("none.toml"))
    (workplace / "m.yaml").write_text("- a")
    with pytest.raises(
        ConfigError, match=r"^m\.yaml: the name of a file with models must end in \.json, \.jsonl, \.toml$"
    ):
        load_models(Path("m.yaml"))
    (workplace / "empty.json").write_text(json.dumps({"models": []}))
    with pytest.raises(ValidationError, match=r"^Model configs required$"):
        load_models(Path("empty.json"))
