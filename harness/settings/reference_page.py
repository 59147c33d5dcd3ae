"""Reference page of settings, generated from the table in `schema`. `python -m harness.settings.reference_page`
prints it; a test compares it with the checked-in page."""

from __future__ import annotations

import sys

from harness.settings.checks import NONE_WORD
from harness.settings.schema import GROUPS, SETTINGS, SHARED, SHORTCUTS, Setting
from harness.settings.values import takes_none

_TITLES = {"env": "Environment: `[env]`", "model": "Model: `[model]`", "save": "Results: `[save]`"}

_HEAD = """\
# Settings

<!-- Written by `python -m harness.settings.reference_page`; change harness/settings/schema.py instead. -->

Every setting of a run, with its name in TOML, on the command line, and what it is when nobody says. `--set PATH=VALUE`
takes the same names: `--set env.num_examples=5`. How layers combine, and which one wins, is told in
[the guide to suites](../guides/suites.md).

| group | highest → lowest |
|---|---|
| env | `--set` · `[eval.env]` · `[env]` · flag · the package's defaults · built-in |
| model | `--set` · `[eval.model]` · `[model]` · flag · endpoint registry · built-in |
| save | `--set` · `[eval.save]` · `[save]` · flag · built-in |

A package's defaults are the table `[tool.harness.eval]`, else `[tool.verifiers.eval]`, of its own `pyproject.toml`.

In the flat form a key stands without its group, and the names in brackets mean the same. Seconds are numbers; tokens
and rollouts are counts. A table may also be a string that holds a JSON object, which is the one way to write null.
"""

_TAIL = """\
## Suite files

| name | what |
|---|---|
| `[env]` `[model]` `[save]` | defaults of all runs; flat keys at the top mean the same |
| `[[eval]]` | one run: `[eval.env]`, `[eval.model]`, `[eval.save]`, or flat keys |
| `[[ablation]]` | as `[[eval]]`, and `[ablation.sweep]` with lists: one run for every combination |
| `[[endpoint]]` | as in the registry, for this file alone |
| `endpoints_path` | the registry to use, relative to the file |
| `[budget]` | what the whole invocation may spend: `max_cost`, `max_tokens_total`, `max_time` (below) |

Flat files of the classic verifiers may hold these keys too, at the top, in `[[eval]]` and in `[[ablation]]`:

| key | means |
|---|---|
| `max_tokens` · `temperature` | the key of that name in `sampling_args`, which wins; both can be swept |
| `header`, or `headers` as a list | `extra_headers`, each `"Name: Value"` |
| `provider` | url and key of [a provider](../guides/models.md), `prime`, `minimax`, `glm`, `local` or `vllm` |
| `env_dir_path` | as `-p`: results go to `DIR/<module>/outputs` where `DIR/<module>` exists |
| `endpoints_path` | in `[[eval]]`: the registry of this run |
| `api_client_type` | only `openai_chat_completions` |
| `verbose` `disable_tui` `resume` `resume_path` `independent_scoring` | no effect; a note says what to use |
| `num_workers` `disable_env_server` `header_from_state` `headers_from_state` | no effect; a note says what to use |

An unknown key in a package's `[tool.verifiers.eval]` is noted and not used; one in `[tool.harness.eval]` is refused.

A file with neither `[[eval]]` nor `[[ablation]]` is one run, if it names an environment.

## Budgets

`[budget]` at the top of a suite file, or flags, bound the whole invocation and no single run. `max_cost` is in US
dollars; `max_time` in seconds, or a text such as `"30m"`. Of file and flag the smaller one holds, since both were
written to be kept; `--set budget.max_cost=5` beats both, and `"none"` takes a bound away. What counts, and what happens
then, is in [the guide](../guides/budgets.md).

## Endpoint registry

`configs/endpoints.toml`, else `configs/endpoints.py`, else none; `-e PATH` names another file or folder. In TOML each
alias is an `[[endpoint]]` with `endpoint_id`; in Python `ENDPOINTS = {"alias": {…}}`, or a list of such dicts for
replicas. The Python file is read as a literal and never run. `api_base_url`, `api_key_var`, `extra_headers` and
`api_client_type` are other names of `url`, `key`, `headers` and `type`.

| key | what |
|---|---|
| `endpoint_id` | the alias (TOML); repeated ids are replicas |
| `url` | base URL; required |
| `model` | the model's name there; the alias itself when left out |
| `key` | environment variable that holds the key; none is sent when left out |
| `headers` | further HTTP headers |
| `rpm` · `tpm` | requests and tokens a minute, for each replica |
| `max_concurrent` | requests in flight, for each replica; a run takes their sum unless a higher layer sets it |
| `type` | only `openai_chat_completions`, the default; an entry of another type is refused when it is used |
| `price` | US dollars a million tokens: `{ input = …, output = …, cached_input = … }`; or `"reported"`, by each reply |
"""

_EVERY = """\
The flags of these settings are options of `bench run`, `eval`, `test`, `multi`, `resume`, `replay` and `rescore`; the
argument `settings` of the Python functions takes their names"""


def settings_page() -> str:
    """Render the page `docs/reference/settings.md`."""
    parts = [_HEAD]
    for group in GROUPS:
        rows = [_row(setting) for setting in SETTINGS if setting.group == group]
        parts.append(
            f"## {_TITLES[group]}\n\n| key | flag | type | built-in | what |\n|---|---|---|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    shortcuts = [f"| {_flags(each.flags)} | {each.kind} | {_cell(each.doc)} |" for each in SHORTCUTS]
    parts.append(
        "## Flags that write into a setting\n\n| flag | type | what |\n|---|---|---|\n" + "\n".join(shortcuts) + "\n"
    )
    shared = ", ".join(f"`{key}`" for key in SHARED)
    parts.append(f"## Options of every evaluation\n\n{_EVERY}: {shared}.\n")
    return "\n".join([*parts, _TAIL])


def _row(setting: Setting) -> str:
    key = f"`{setting.key}`" + "".join(f" (`{alias}`)" for alias in setting.door.aliases)
    flags = _flags((*setting.door.flags, *setting.door.off)) if setting.door.flags else "TARGET"
    kind = setting.door.kind
    if kind in ("integer", "number") and takes_none(setting):
        kind = f'{kind} or `"{NONE_WORD}"`'
    return f"| {key} | {flags} | {kind} | {_built_in(setting)} | {_cell(setting.doc)} |"


def _flags(names: tuple[str, ...]) -> str:
    return " ".join(f"`{name}`" for name in names)


def _built_in(setting: Setting) -> str:
    if setting.door.derived:
        return f"from {' and '.join(f'`{name}`' for name in setting.door.derived.split(' and '))}"
    if setting.key == "env_id":
        return "required"
    value = setting.default
    if value is None:
        return NONE_WORD
    if isinstance(value, bool):
        return str(value).lower()
    return "empty" if value in ((), {}) else f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(settings_page())
