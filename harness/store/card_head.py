"""YAML head of a dataset card (README.md): split the card, and read and replace the key `configs:`. All other keys,
comments and formatting of an existing head are kept byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

from harness.core.errors import StoreError
from harness.core.types import JsonDict

# The same pattern as in huggingface_hub, so that both find the same head.
_HEAD = re.compile(r"\s*+---[\r\n]++([\S\s]*?)(?<![\r\n])[\r\n]+---(?:\r\n|\r|\n|$)")
_EMPTY_HEAD = re.compile(r"\s*+---[\r\n]()[\r\n]+---(?:\r\n|\r|\n|$)")

LONGEST = 500_000
"""Maximum characters of a card's YAML head: enough for more than a thousand runs."""

MOST_VALUES = 25_000
"""Maximum values in a card's YAML head, with aliases expanded: enough for two thousand runs."""

DEEPEST = 100
"""Maximum nesting depth of a card's YAML head: the stack of YAML's C loader overflows at some thousands."""

LONGEST_WORD = 2_000
"""Maximum characters of an unquoted value: converting a very long number takes quadratic time."""


_SIZES = ("1K", "10K", "100K", "1M", "10M")
_LIMITS = (10**3, 10**4, 10**5, 10**6, 10**7)
"""Upper bounds of the Hub's size categories: as the Hub writes them, and as numbers of rows."""


def config_entry(run_id: str, path: str, *, default: bool, description: str | None = None) -> JsonDict:
    """Build an entry of `configs:` for one run.

    Args:
        run_id: Name of the config.
        path: Path of the run's parquet, relative to the card; may be a pattern.
        default: Whether `load_dataset` without a config name loads this run.
        description: Description that `datasets` shows.
    """
    entry: JsonDict = {"config_name": run_id, "data_files": [{"split": "train", "path": path}]}
    entry |= {"description": description} if description is not None else {}
    return entry | {"default": True} if default else entry


def configs_yaml(entries: Sequence[Mapping[str, object]]) -> str:
    """Return the `configs:` key as YAML text, with a final newline."""
    return _dump({"configs": [dict(entry) for entry in entries]})


def facts_yaml(env_ids: Iterable[str], rows: int) -> str:
    """The keys `tags` and `size_categories` of the Hub as YAML text. There is no `license`: only the owner knows it.

    Args:
        env_ids: The environments of the rows.
        rows: Number of rows, one per rollout.
    """
    names = [f"{name}<n<{above}" if name else f"n<{above}" for name, above in pairwise(["", *_SIZES])]
    size = next((name for name, most in zip(names, _LIMITS, strict=True) if rows < most), f"n>{_SIZES[-1]}")
    return _dump({"tags": ["bench", *dict.fromkeys(env_ids)], "size_categories": [size]})


def split_card(card: str) -> tuple[str, str]:
    """Split a card into its head without the `---` lines (or ""), and its body."""
    card = card.removeprefix("\ufeff")
    found = _HEAD.match(card) or _EMPTY_HEAD.match(card)
    return (found.group(1), card[found.end() :]) if found else ("", card)


def join_card(head: str, body: str) -> str:
    """Join the head and the body of a card."""
    return f"---\n{head.rstrip()}\n---\n{body}" if head.strip() else body


def read_configs(head: str) -> list[JsonDict]:
    """Parse the entries of `configs:`; empty if the key is missing.

    Raises:
        StoreError: the head is not a YAML mapping, or `configs` is not a list of mappings.
    """
    configs = cast(object, _mapping(head).get("configs") or [])
    if isinstance(configs, list) and all(isinstance(entry, dict) for entry in cast("list[object]", configs)):
        return cast("list[JsonDict]", configs)
    raise StoreError("the card's `configs` is not a list of mappings: repair the card by hand, then try again")


def merge_config(head: str, entry: JsonDict) -> str:
    """Insert `entry` into the `configs:` of a head: it replaces the entry of that name, or becomes the first.

    If it is the default, the other entries lose that mark. The rest of the head is kept.

    Raises:
        StoreError: the head cannot be read.
    """
    import yaml

    others = [known for known in read_configs(head) if known.get("config_name") != entry["config_name"]]
    if entry.get("default"):
        others = [{key: value for key, value in known.items() if key != "default"} for known in others]
    wanted = _mapping(head) | {"configs": [entry, *others]}
    spliced = _spliced(head, configs_yaml([entry, *others]))
    with suppress(yaml.YAMLError):
        if _load(spliced) == wanted:
            return spliced
    # Rare cases: an anchor inside the old entries, or a head in flow style. The comments are lost.
    return _dump(wanted)


def _mapping(head: str) -> JsonDict:
    import yaml

    if len(head) > LONGEST:
        raise StoreError(f"the card's YAML head has more than {LONGEST} characters: shorten it by hand, then try again")
    try:
        _check_limits(head)
        value = _load(head)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date, for example
        raise _refused(f"cannot be read: {' '.join(str(error).split())};") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _refused("is not a mapping:")
    return cast(JsonDict, value)


def _refused(problem: str) -> StoreError:
    return StoreError(f"the card's YAML head {problem} repair it by hand, then try again")


def _check_limits(head: str) -> None:
    """Reject a YAML head with too many levels or values, before objects are built from it. Aliases are counted as
    expanded: ten lines can expand to a billion values.

    Raises:
        StoreError: a limit is exceeded, or an alias refers to a value that contains it.
    """
    import yaml

    count = 0
    sizes: dict[str | None, int] = {}
    """Number of values in each YAML node, by its anchor; 0 until the node is complete."""
    open_nodes: list[tuple[str | None, int]] = []
    """Anchor of each YAML node that is still open, and the value of `count` at its start."""
    for event in cast("Iterable[object]", yaml.parse(head, Loader=_loader())):  # pyright: ignore[reportUnknownMemberType]
        if isinstance(event, yaml.AliasEvent):
            if sizes.get(event.anchor) == 0:
                raise _refused("has an alias that refers to a value that contains it:")
            count += sizes.get(event.anchor, 1)
        elif isinstance(event, yaml.NodeEvent):
            open_nodes.append((event.anchor, count))
            sizes[event.anchor] = 0
            count += 1
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and len(event.value) > LONGEST_WORD:
            raise _refused(f"has a value of more than {LONGEST_WORD} characters without quotation marks:")
        if len(open_nodes) > DEEPEST:
            raise _refused("is nested too deeply:")
        if count > MOST_VALUES:
            raise _refused(f"expands to more than {MOST_VALUES} values:")
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionEndEvent):
            anchor, before = open_nodes.pop()
            sizes[anchor] = count - before


def _dump(value: JsonDict) -> str:
    import yaml

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=1000)
    # PyYAML does not escape some line separators and reads them back as spaces; ASCII output avoids that.
    return text if _load(text) == value else yaml.safe_dump(value, sort_keys=False, width=1000)


def _load(text: str) -> object:
    loader = _loader()(text)
    try:
        return cast(object, loader.get_single_data())
    finally:
        loader.dispose()


def _loader() -> Any:
    """The safe YAML loader written in C, which is much faster than the Python one."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _spliced(head: str, block: str) -> str:
    """Replace the text of the `configs` key in `head` by `block`, or append `block`."""
    import yaml

    compose = cast("Callable[..., object]", yaml.compose)  # pyright: ignore[reportUnknownMemberType]
    node = compose(head, Loader=_loader())
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "configs":
                start, end = key.start_mark.index, value.end_mark.index
                lines = head[start:end].split("\n")
                # The parser counts comments and blank lines after a value as part of it: they are kept.
                first = len(lines)
                while first > 1 and lines[first - 1].strip(" \t\r")[:1] in ("", "#"):
                    first -= 1
                return head[:start] + block + "\n".join(lines[first:]) + head[end:].lstrip("\r\n")
    return (head.rstrip() + "\n" if head.strip() else "") + block
