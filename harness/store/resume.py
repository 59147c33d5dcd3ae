"""Selection of a recorded run to resume, by comparing identities, and reasons why a run cannot be resumed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

from harness.core.errors import StoreError
from harness.core.keys import canonical
from harness.core.redact import REDACTED, hidden
from harness.core.types import JsonDict
from harness.store.codec import to_text
from harness.store.finding import runs_in
from harness.store.journal import read_at
from harness.store.manifest import Manifest, without_secrets
from harness.store.recorded import Recorded
from harness.store.rundir import RunDir

__all__ = ["Recorded", "differences", "find_resumable", "missing_examples", "read_at", "resume_obstacle"]

LONG = 120
"""Maximum characters of a value in a message; enough to distinguish two URLs or argument lists."""

_ABSENT = object()
_DIGEST = re.compile(r"[0-9a-f]{64}")
"""Pattern of the hashes that `keys.hash_files` makes of source code."""


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Compare two identities: one line per changed setting, with dotted path, recorded and new value.

    Args:
        old: `Manifest.identity` of the recorded run.
        new: Identity of the requested run.

    Returns:
        Empty if they are equal. Secrets are compared, and shown, as `[redacted]`.
    """
    return _differences("", _as_recorded(old), _as_recorded(new))


def find_resumable(parent_dir: Path, manifest: Manifest) -> Path | None:
    """Find the newest run in `parent_dir` that can be resumed: same name, same identity.

    `-n`, `-r`, concurrency limits and retries are not part of an identity and may differ.

    Returns:
        Its run folder; None if no run qualifies. `resume_obstacle` then gives the reason.
    """
    for run, recorded in _candidates(parent_dir, manifest):
        if not differences(recorded.identity, manifest.identity):
            return run
    return None


def resume_obstacle(parent_dir: Path, manifest: Manifest) -> str | None:
    """Why `find_resumable` found no run: the differences from the newest run of that name in `parent_dir`.

    Returns:
        One sentence that names the settings, or the unreadable manifest; None if no run of that name exists, so a new
        run loses nothing.
    """
    for run in reversed(runs_in(parent_dir)):
        try:
            recorded = RunDir(run).read_manifest()
        except StoreError as error:  # it may be the right one: a silent restart would pay twice
            return f"{run.name} in {parent_dir} cannot be resumed: {error}"
        if _is_candidate(recorded, manifest):
            changed = differences(recorded.identity, manifest.identity)
            return f"{run.name} in {parent_dir} cannot be resumed: {'; '.join(changed)}" if changed else None
    return None


def missing_examples(recorded: Recorded, current_keys: Iterable[str]) -> str | None:
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
    return f"{gone} of {total} {what} gone: the dataset, the environment or -n has changed since {recorded.path.parent}"


def _candidates(parent_dir: Path, manifest: Manifest) -> Iterable[tuple[Path, Manifest]]:
    for run in reversed(runs_in(parent_dir)):
        try:
            recorded = RunDir(run).read_manifest()
        except StoreError:
            continue  # not resumable by this version; an older run may be
        if _is_candidate(recorded, manifest):
            yield run, recorded


def _is_candidate(recorded: Manifest, manifest: Manifest) -> bool:
    # Whether a run has the same name and was not made from another run. A derived run uses the other run's examples,
    # and is resumed by its own id.
    return recorded.name == manifest.name and not recorded.derived


def _as_recorded(identity: Mapping[str, object]) -> JsonDict:
    """The identity as read back from run.json: secrets redacted, tuples as lists."""
    return cast(JsonDict, without_secrets(hidden(identity)))


def _differences(path: str, old: object, new: object) -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        a, b = cast(JsonDict, old), cast(JsonDict, new)
        names = list(dict.fromkeys([*a, *b]))
        below = [_differences(_join(path, name), a.get(name, _ABSENT), b.get(name, _ABSENT)) for name in names]
        return [line for lines in below for line in lines]
    before: object = cast(object, old)
    after: object = new
    if before is not _ABSENT and after is not _ABSENT and canonical(before) == canonical(after):
        return []
    if _is_digest(before) and _is_digest(after):
        return [f"{path} has changed"]  # the values are only hashes
    hint = " (secrets are not recorded: give it again)" if before == REDACTED and after is _ABSENT else ""
    return [f"{path or 'identity'} was {_shown(before)}{hint}, now {_shown(after)}"]


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    if value is _ABSENT:
        return "not set"
    text = to_text(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"
