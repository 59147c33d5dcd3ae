"""Keys by name: what is odd about them is said, and nothing of them is."""

from __future__ import annotations

import pytest
from tables import for_each_row

from harness.cli.doctor.endpoints import EndpointQuery, check_keys, key_defect
from harness.settings.endpoints import Endpoint


def wanted(name: str, host: str, is_asked: bool) -> EndpointQuery:
    return EndpointQuery(Endpoint(f"http://{host}/v1", name, "m"), "a run", is_asked)


SOUND = "sk-canary-0123456789abcdef"


@for_each_row("key", [SOUND, f"{SOUND}\n", "EMPTY", "ollama", "abc.def_ghi-jkl==", "Your", "xx", "hf_0123456789abcdef"])
def test_keys_as_providers_give_them_are_not_odd(key: str) -> None:
    assert key_defect(key) == ""


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (f'"{SOUND}"', "begins or ends with a quotation mark"),
        (f"'{SOUND}", "begins or ends with a quotation mark"),
        (f"\u201c{SOUND}\u201d", "begins or ends with a quotation mark"),
        (f"{SOUND}\nsecond", "contains a line break"),
        (f"{SOUND} # mine", "contains a space or tab"),
        (f"Bearer {SOUND}", "begins with the word Bearer, which is sent anyway"),
        (f"{SOUND}\u2026", "contains a character that is not ASCII"),
        (f"{SOUND}\x00x", "contains a control character"),
        (f"OPENAI_API_KEY={SOUND}", "begins with a variable's name and ="),
        ("<your key>", "contains a space or tab"),
        ("your-api-key", "is a placeholder, not a key"),
        ("sk-put-it-here", "is a placeholder, not a key"),
        ("...", "is a placeholder, not a key"),
        ("xxxx", "is a placeholder, not a key"),
    ],
)
def test_odd_keys_are_named_without_a_letter_of_them(key: str, words: str) -> None:
    assert key_defect(key) == words
    [found] = check_keys([wanted("MY_KEY", "api.example.org", True)], {"MY_KEY": key})
    assert (found.status, found.says) == (
        "problem", f"set, but malformed: it {words}; it would be sent to api.example.org"
    )  # fmt: skip
    assert found.fix == "set MY_KEY to the key alone, without anything around it"


def test_a_key_is_set_or_not_and_who_asked_decides_how_bad_that_is() -> None:
    whom = "api.example.org"
    environ = {"SET": SOUND, "BLANK": "  \n"}
    asked = [
        wanted("SET", whom, True), wanted("BLANK", whom, True), wanted("UNSET", whom, True),
        wanted("IDLE", whom, False), wanted("LOCAL", "localhost:8000", True),
    ]  # fmt: skip
    found = check_keys(asked, environ)
    assert [(each.name, each.status, each.says) for each in found] == [
        ("SET", "ok", f"set; sent to {whom}"),
        ("BLANK", "problem", f"set, but empty; it would be sent to {whom}"),
        ("UNSET", "problem", f"not set; it would be sent to {whom}"),
        ("IDLE", "note", f"not set; it would be sent to {whom}"),
        ("LOCAL", "ok", "not set; localhost:8000 is on this machine, and may not need a key"),
    ]
    assert found[2].fix.startswith("export UNSET, or put it into .env; ")


def test_a_variable_is_told_of_once_with_all_who_get_it_and_its_strictest_use() -> None:
    asked = [wanted("A", "one", False), wanted("A", "two", True), wanted("A", "localhost:1", False)]
    [found] = check_keys(asked, {})
    assert (found.status, found.says) == ("problem", "not set; it would be sent to one, two, localhost:1")


def test_keys_of_other_providers_are_listed_by_name_and_odd_ones_noted() -> None:
    found = check_keys([wanted("GROQ_API_KEY", "x", True)], {"GROQ_API_KEY": SOUND, "OPENAI_API_KEY": f'"{SOUND}"'})
    assert [(each.name, each.status) for each in found] == [
        ("GROQ_API_KEY", "ok"), ("others", "ok"), ("OPENAI_API_KEY", "note"),
    ]  # fmt: skip
    assert found[1].says == "also set: OPENAI_API_KEY"
    assert all(SOUND not in f"{each.says}{each.fix}" for each in found)


def test_two_values_of_one_variable_are_noted() -> None:
    found = check_keys([wanted("A", "x", True)], {"A": SOUND}, overruled=["A", "B"])
    assert [(each.name, each.status) for each in found] == [("A", "ok"), ("A", "note")]
    assert found[1].says == "the environment and .env have different values; the one in the environment is used"
