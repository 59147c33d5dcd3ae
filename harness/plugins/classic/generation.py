"""Detection of the generation of the classic API, a family of `verifiers` releases, that a package was written for:
from the requirements of its distribution, or else from its source text, without importing it. In generation `B` (0.1.8
– 0.1.10), messages are dicts, tools are in `oai_tools`, and times are in milliseconds. In generation `C` (0.1.11 –
0.3), messages are typed, tools are `vf.Tool` objects in `tool_defs`, and times are spans."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

from harness.plugins.classic.source_text import code_of, names_of_api

if TYPE_CHECKING:
    from packaging.requirements import Requirement

Generation: TypeAlias = Literal["B", "C"]

DEFAULT: Generation = "B"
"""Generation of the classic API that is assumed if a package gives no hint. It also suits code that uses only features
common to both generations."""

VERSIONS: dict[Generation, str] = {"B": "0.1.9.post3", "C": "0.1.14"}
"""Version of `verifiers` that is reported to packages of each generation of the classic API."""

OTHER: dict[Generation, Generation] = {"B": "C", "C": "B"}
"""For each of the two generations of the classic API, the other one."""

_RELEASES: dict[Generation, tuple[str, ...]] = {
    "B": ("0.1.8", "0.1.8.post2", "0.1.9", "0.1.9.post3", "0.1.10"),
    "C": ("0.1.11", "0.1.12", "0.1.14", "0.2.0", "0.3.1"),
}
"""Releases of `verifiers` in each generation. A package's version requirement is compared with them."""

_HINTS: dict[Generation, tuple[re.Pattern[str], ...]] = {
    "B": tuple(
        re.compile(pattern)
        for pattern in (
            r"\boai_tools\b", r"\bChatMessages?\b", r"\b(?:generation|scoring|total)_ms\b", r"\bscore_sem\b",
            r"\[[\"']function[\"']\]|\.get\([\"']function[\"']", r"\bChatCompletion\w*", r"\bModelResponse\b",
            r"convert_func_to_oai_tool", r"[\"']tool_calls[\"'] (?:not )?in ", r"parse_response_messages\b",
        )
    ),
    "C": tuple(
        re.compile(pattern)
        for pattern in (
            r"\b(?:User|Assistant|System|Tool)Message\b", r"\btool_defs\b", r"\bvf\.Tool(?:Call)?\b", r"\bToolCall\b",
            r"\.tool_calls\b", r"\bensure_keys\b|\bMissingKeyError\b", r"\bDatasetBuilder\b", r"\bvf\.Client\b",
            r"\bmaybe_normalize_messages\b|\bnormalize_messages\b", r"convert_func_to_tool_def",
            r"timing[\"']\]\.\w+", r"parse_response_message\b", r"\btimeout_seconds\s*=", r"\bpass_threshold\s*=",
            r"\b(?:Invalid)ModelResponseError\b|\bTunnelError\b",
        )
    ),
}  # fmt: skip
"""Patterns of names and expressions that occur only in code written for one generation of the classic API."""


def generation_of(requirements: Iterable[str], sources: Iterable[str]) -> Generation:
    """Determine which generation of the classic API a package was written for.

    Args:
        requirements: The package's requirements, from its distribution's metadata or its `pyproject.toml`.
        sources: Source text of the package's modules.
    """
    clauses = [clause for each in parse_requirements(requirements) if _is_api(each) for clause in each.specifier]
    allowed: list[Generation] = [
        kind
        for kind, releases in _RELEASES.items()
        if any(all(clause.contains(release, prereleases=True) for clause in clauses) for release in releases)
    ]
    if len(allowed) == 1:
        return allowed[0]
    lowest = [_release(clause.version) for clause in clauses if clause.operator in (">=", ">", "~=", "==")]
    declared: Generation = "C" if lowest and max(lowest) >= (0, 1, 11) else "B"
    if not allowed and lowest:
        return declared  # a pin to a release that is not in the table
    texts = list(sources)
    # The generation of the classic API whose specific names occur in the source texts; None if names of neither or of
    # both occur.
    from harness.plugins.classic.modules import EXPORTS, NAMES

    used = {name for text in texts for name in names_of_api(text)}
    names = {kind: {*NAMES[kind], *EXPORTS[kind]} for kind in VERSIONS}
    kinds: list[Generation] = [kind for kind in VERSIONS if used & (names[kind] - names[OTHER[kind]])]
    decided = kinds[0] if len(kinds) == 1 else None
    if decided is not None:
        return decided
    codes = [code_of(text) for text in texts]
    votes: dict[Generation, int] = {
        generation: sum(any(pattern.search(code) for code in codes) for pattern in patterns)
        for generation, patterns in _HINTS.items()
    }
    if votes["B"] != votes["C"]:
        return "B" if votes["B"] > votes["C"] else "C"
    return declared if lowest else DEFAULT


def requires_verifiers(requirements: Iterable[str]) -> bool:
    """Return whether `verifiers` is among the requirements."""
    return any(_is_api(requirement) for requirement in parse_requirements(requirements))


def parse_requirements(requirements: Iterable[str]) -> Iterator[Requirement]:
    """Parse requirements; invalid ones are skipped."""
    from packaging.requirements import InvalidRequirement, Requirement

    for requirement in requirements:
        try:
            yield Requirement(requirement)
        except InvalidRequirement:
            continue


def _is_api(requirement: Requirement) -> bool:
    return requirement.name.lower() == "verifiers"


def _release(version: str) -> tuple[int, ...]:
    from packaging.version import Version

    return Version(version.removesuffix(".*")).release
