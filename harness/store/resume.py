"""Choose a recorded run to resume, by comparing identities, and explain why a run cannot be resumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError
from harness.core.keys import canonical
from harness.core.messages import Message, Name
from harness.core.redact import REDACTED, hidden
from harness.core.types import JsonDict
from harness.store.codec import to_text
from harness.store.find_runs import runs_in
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest, without_secrets
from harness.store.rundir import RunDir

LONG = 120
"""Maximum characters of a value in a message; enough to distinguish two URLs or argument lists."""

_ABSENT = object()
_DIGEST = re.compile(r"[0-9a-f]{64}")
"""Pattern of a hash of source code, as `keys.hash_files` returns it."""


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> tuple[Message, ...]:
    """Compare two identities: one line per changed setting, with dotted path, recorded and new value.

    Args:
        old: `Manifest.identity` of the recorded run.
        new: Identity of the requested run.

    Returns:
        The lines; empty if the identities are equal. Secrets are compared, and shown, as `[redacted]`.
    """
    return tuple(_differences("", _as_recorded(old), _as_recorded(new)))


def find_resumable(parent_dir: Path, manifest: Manifest) -> Path | None:
    """Find the newest run in `parent_dir` that can be resumed: same name, same identity.

    `-n`, `-r`, concurrency limits and retries are not part of an identity and may differ.

    Returns:
        The run's folder; None if no run qualifies. `resume_obstacle` then gives the reason.
    """
    for run in reversed(runs_in(parent_dir)):
        with suppress(StoreError):  # not resumable by this version; an older run may be
            recorded = RunDir(run).read_manifest()
            if _is_candidate(recorded, manifest) and not differences(recorded.identity, manifest.identity):
                return run
    return None


def resume_obstacle(parent_dir: Path, manifest: Manifest) -> Message | None:
    """Explain why no run can be resumed: list the differences from the newest run of the same name in `parent_dir`.

    Returns:
        One sentence that names the settings, or the unreadable manifest; None if no run of that name exists, so a new
        run loses nothing.
    """
    for run in reversed(runs_in(parent_dir)):
        try:
            recorded = RunDir(run).read_manifest()
        except StoreError as error:  # it may be the right one: a silent restart would pay twice
            return Message(
                "{run} in {folder} cannot be resumed: {error}.", run=run.name, folder=parent_dir, error=error
            )
        if _is_candidate(recorded, manifest):
            changed = differences(recorded.identity, manifest.identity)
            words = "{run} in {folder} cannot be resumed: {changed}."
            return Message(words, run=run.name, folder=parent_dir, changed=changed) if changed else None
    return None


def missing_examples(recorded: Recorded, current_keys: Iterable[str]) -> Message | None:
    """Check that the dataset still has the recorded examples.

    Args:
        recorded: The journal's content.
        current_keys: Keys of all examples of the plan, in any order.

    Returns:
        A message such as "87 of 100 recorded examples are gone"; None if all exist.
    """
    total = recorded.example_count
    is_gone = bytearray(b"\1") * total
    for key in current_keys:
        number = recorded.example_number(key)
        if number is not None:
            is_gone[number] = 0
    gone = sum(is_gone)
    if not gone:
        return None
    what = "recorded example is" if total == 1 else "recorded examples are"
    return Message(
        f"{gone} of {total} {what} gone: the dataset, the environment or {{num_examples}} has changed since {{folder}}",
        folder=recorded.path.parent,
    )


def _is_candidate(recorded: Manifest, manifest: Manifest) -> bool:
    # Whether a run has the same name and was not made from another run. A derived run uses the other run's examples,
    # and is resumed by its own id.
    return recorded.name == manifest.name and not recorded.derived


def _as_recorded(identity: Mapping[str, object]) -> JsonDict:
    """The identity as it would be read from `run.json`: secrets redacted, tuples as lists."""
    return cast(JsonDict, without_secrets(hidden(identity)))


def _differences(path: str, old: object, new: object) -> list[Message]:
    if isinstance(old, dict) and isinstance(new, dict):
        a, b = cast(JsonDict, old), cast(JsonDict, new)
        return [
            line
            for name in dict.fromkeys([*a, *b])
            for line in _differences(f"{path}.{name}" if path else name, a.get(name, _ABSENT), b.get(name, _ABSENT))
        ]
    before: object = cast(object, old)
    after: object = new
    if before is not _ABSENT and after is not _ABSENT and canonical(before) == canonical(after):
        return []
    if all(isinstance(value, str) and _DIGEST.fullmatch(value) for value in (before, after)):
        return [Message("{name} has changed", name=Name(path))]  # the values are only hashes
    hint = " (secrets are not recorded: give it again)" if before == REDACTED and after is _ABSENT else ""
    name = Name(path or "identity")
    return [
        Message(f"{{name}} was {{before}}{hint}, now {{after}}", name=name, before=_shown(before), after=_shown(after))
    ]


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "not set"
    text = to_text(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"
