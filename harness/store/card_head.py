"""YAML head of a dataset card: split the card, read and replace the key `configs:`. All other keys, comments and
formatting of an existing head are kept byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from harness.core.errors import StoreError
from harness.core.types import JsonDict

# The same pattern as in huggingface_hub, so that both find the same head.
_HEAD = re.compile(r"\s*+---[\r\n]++([\S\s]*?)(?<![\r\n])[\r\n]+---(?:\r\n|\r|\n|$)")
_EMPTY_HEAD = re.compile(r"\s*+---[\r\n]()[\r\n]+---(?:\r\n|\r|\n|$)")

LONGEST = 500_000
"""Maximum characters of a head: enough for more than a thousand runs."""

MOST_VALUES = 25_000
"""Maximum values in a head with aliases expanded: enough for two thousand runs."""

DEEPEST = 100
"""Maximum nesting of a head: the C loader's stack overflows at some thousands."""

LONGEST_WORD = 2_000
"""Maximum characters of an unquoted value: converting a number takes quadratic time."""


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
    """The `configs:` key as YAML text, with a final newline."""
    return _dump({"configs": [dict(entry) for entry in entries]})


def split_card(card: str) -> tuple[str, str]:
    """Split a card into its head without the `---` lines (or ""), and its body."""
    card = card.removeprefix("\ufeff")
    found = _HEAD.match(card) or _EMPTY_HEAD.match(card)
    return (found.group(1), card[found.end() :]) if found else ("", card)


def join_card(head: str, body: str) -> str:
    """Join head and body to a card."""
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
    others = [known for known in read_configs(head) if known.get("config_name") != entry["config_name"]]
    if entry.get("default"):
        others = [{key: value for key, value in known.items() if key != "default"} for known in others]
    return _with_configs(head, [entry, *others])


def _mapping(head: str) -> JsonDict:
    import yaml

    if len(head) > LONGEST:
        raise StoreError(f"the card's YAML head has more than {LONGEST} characters: shorten it by hand, then try again")
    try:
        _check_events(head)
        _check_size(head)
        value = _load(head)
    except RecursionError:
        raise StoreError("the card's YAML head is nested too deeply: repair it by hand, then try again") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date, for example
        where = " ".join(str(error).split())
        raise StoreError(f"the card's YAML head cannot be read: {where}; repair it by hand, then try again") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise StoreError("the card's YAML head is not a mapping: repair it by hand, then try again")
    return cast(JsonDict, value)


def _check_events(head: str) -> None:
    """Reject a head with too many levels or values, before objects are built from it.

    Raises:
        StoreError: a limit is exceeded.
    """
    import yaml

    depth = count = 0
    for event in cast("Iterable[object]", yaml.parse(head, Loader=_loader())):  # pyright: ignore[reportUnknownMemberType]
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        count += isinstance(event, yaml.NodeEvent)
        if depth > DEEPEST:
            raise RecursionError
        if count > MOST_VALUES:
            raise _too_many()
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and len(event.value) > LONGEST_WORD:
            raise StoreError(
                f"the card's YAML head has a value of more than {LONGEST_WORD} characters without quotation marks: "
                "repair it by hand, then try again"
            )


def _too_many() -> StoreError:
    return StoreError(
        f"the card's YAML head unfolds to more than {MOST_VALUES} values: repair it by hand, then try again"
    )


def _check_size(head: str) -> None:
    """Reject a head whose aliases expand to too many values: ten lines can expand to a billion.

    Raises:
        StoreError: the limit is exceeded, or an alias contains itself.
    """
    import yaml

    sizes: dict[int, int] = {}
    open_now: set[int] = set()

    def size_of(node: object) -> int:
        if id(node) in open_now:
            raise StoreError("the card's YAML head holds itself: repair it by hand, then try again")
        if id(node) not in sizes:
            open_now.add(id(node))
            children: list[object] = []
            if isinstance(node, yaml.SequenceNode):
                children = list(node.value)
            elif isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
            sizes[id(node)] = 1 + sum(map(size_of, children))
            open_now.discard(id(node))
        return sizes[id(node)]

    if size_of(_compose(head)) > MOST_VALUES:
        raise _too_many()


def _with_configs(head: str, entries: list[JsonDict]) -> str:
    import yaml

    wanted = _mapping(head) | {"configs": entries}
    spliced = _spliced(head, configs_yaml(entries))
    try:
        if _load(spliced) == wanted:
            return spliced
    except yaml.YAMLError:
        pass
    # Rare cases: an anchor inside the old entries, or a head in flow style. The comments are lost.
    return _dump(wanted)


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


def _compose(text: str) -> object:
    import yaml

    compose = cast("Callable[..., object]", yaml.compose)  # pyright: ignore[reportUnknownMemberType]
    return compose(text, Loader=_loader())


def _loader() -> Any:
    """The safe C loader, which is much faster than the Python one."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _spliced(head: str, block: str) -> str:
    """Replace the text of the `configs` key in `head` by `block`, or append `block`."""
    import yaml

    node = _compose(head)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == "configs":
                start, end = key.start_mark.index, value.end_mark.index
                return head[:start] + block + _comments(head[start:end]) + head[end:].lstrip("\r\n")
    return (head.rstrip() + "\n" if head.strip() else "") + block


def _comments(value: str) -> str:
    """Comments and blank lines at the end of a value, which the parser counts as part of it."""
    lines = value.split("\n")
    first = len(lines)
    while first > 1 and lines[first - 1].strip(" \t\r")[:1] in ("", "#"):
        first -= 1
    return "\n".join(lines[first:])
