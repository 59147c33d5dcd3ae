"""The strikes of the chaos suite: named points, damage to files, and random ones from a seed. Owns which there are."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chaos_rounds import INTERRUPTED, KILLED, Round, Strike

GENERATED, SCORED = '"type":"generated"', '"type":"scored"'
JOURNAL = "*/journal.jsonl"
STOPPED = (1,)


def at(call: str, path: str = JOURNAL, do: str = "SIGKILL", **more: Any) -> dict[str, Any]:
    """A rule of `chaos_driver`."""
    return {"call": call, "path": path, "do": do, **more}


def kill(call: str, path: str = JOURNAL, **more: Any) -> Strike:
    """SIGKILL at a call."""
    return Strike((at(call, path, **more),))


def fail(call: str, path: str, code: str, *, codes: tuple[int, ...] = STOPPED, says: str = "", **more: Any) -> Strike:
    """A call that fails."""
    return Strike((at(call, path, code, **more),), codes, says=says)


def interrupt(call: str, path: str, number: str, **more: Any) -> Strike:
    """A polite signal at a call: what is in flight may be all that was left."""
    return Strike((at(call, path, number, **more),), (*INTERRUPTED, 0))


EARLY = kill("write", holds=GENERATED, nth=6, when="after")
"""A first death with something on disk."""

LATER = kill("replace", "*/data/part*", nth=3, when="after")
"""One with rows on disk."""


def _kills() -> list[Round]:
    group = "SIGKILL in a rollout"
    return [
        Round(group, "generation begins", (Strike(at_request=12),)),
        Round(group, "generation ends", (kill("write", holds=GENERATED, nth=5),)),
        Round(group, "half a generated line", (kill("write", holds=GENERATED, nth=4, when="half"),), singly=True),
        Round(group, "a generated line that is not synced", (kill("write", holds=GENERATED, nth=7, when="after"),)),
        Round(group, "before a sync", (kill("fsync", nth=5),)),
        Round(group, "after a sync", (kill("fsync", nth=6, when="after"),)),
        Round(group, "between a generated and its scored line", (kill("write", holds=SCORED, nth=4),), singly=True),
        Round(group, "half a scored line", (kill("write", holds=SCORED, nth=3, when="half"),)),
        Round(group, "a group's scores", (kill("write", "*grouped*/journal.jsonl", holds=SCORED, nth=2, when="half"),)),
        Round(group, "a verdict that is not written", (kill("write", "*judged*/journal.jsonl", holds=SCORED, nth=2),)),
        Round(
            group,
            "a verdict that is not synced",
            (kill("write", "*judged*/journal.jsonl", holds=SCORED, nth=2, when="after"),),
        ),
        Round(group, "between two turns", (Strike(at_request=30),)),
    ]


def _files() -> list[Round]:
    group = "SIGKILL in a file"
    points = [
        ("a run folder is made", kill("mkdir", "*/evals/*/*", nth=2, when="after")),
        ("config.toml, first", kill("replace", "*/config.toml", nth=2)),
        ("run.json, first", kill("replace", "*/run.json", nth=2)),
        ("run.json is there", kill("replace", "*/run.json", nth=3, when="after")),
        ("the suite's file", kill("replace", "*/suites/*.json")),
        ("rows are written", kill("fsync", "*/data/.part*")),
        ("rows take their place", kill("replace", "*/data/part*", nth=2)),
        ("rows are there, the card is not", kill("replace", "*/data/part*", nth=2, when="after")),
        ("the card", kill("replace", "*/README.md", nth=2)),
        ("summary.json", kill("replace", "*/summary.json")),
        ("summary.json is there", kill("replace", "*/summary.json", when="after")),
        ("run.json, last", kill("replace", "*/run.json", nth=5)),
        ("run.json says done", kill("replace", "*/run.json", nth=5, when="after")),
        ("all rows are written anew", kill("fsync", "*/.data.*/train*")),
        ("the new data/ is about to take its place", kill("fsync", "*/.data.????????")),
        ("the new data/ is there, the old one too", kill("unlink", "*/.data.*/part*")),
        ("a late card", kill("replace", "*/README.md", nth=8)),
    ]
    rounds = [Round(group, name, (strike,)) for name, strike in points]
    late = {"run.json says done", "all rows are written anew", "the new data/ is about to take its place"}
    return rounds + [
        Round(group, f"{name}; bench resume", (strike,), singly=True) for name, strike in points if name in late
    ]


def _resumes() -> list[Round]:
    group = "SIGKILL in a resume"
    torn = Strike(damage=tear)
    again = [
        ("before the torn line is cut", kill("ftruncate")),
        ("after the torn line is cut", kill("ftruncate", when="after")),
        ("before the cut is synced", kill("fsync")),
        ("run.json", kill("replace", "*/run.json", nth=2)),
        ("its first line", kill("write", holds='"type"', when="half")),
        ("rows", kill("replace", "*/data/part*")),
        ("data/", kill("fsync", "*/.data.????????")),
    ]
    rounds = [Round(group, name, (EARLY, Strike(second.rules, damage=tear))) for name, second in again]
    twice = Round(group, "three times at one place", (EARLY, EARLY, Strike(EARLY.rules, may_miss=True)))
    return [*rounds, twice, Round(group, "the server has a bad hour", (EARLY, torn), trouble=("500@times=12",))]


def _signals() -> list[Round]:
    group = "SIGTERM and Ctrl-C"
    hangs = ("hang@at=25-,times=4",)
    return [
        Round(group, "SIGTERM in a rollout", (interrupt("write", JOURNAL, "SIGTERM", holds=GENERATED, nth=8),)),
        Round(
            group, "Ctrl-C in a rollout", (interrupt("write", JOURNAL, "SIGINT", holds=GENERATED, nth=8),), singly=True
        ),
        Round(group, "Ctrl-C in a sync", (interrupt("fsync", JOURNAL, "SIGINT", nth=4),)),
        Round(group, "Ctrl-C in scoring", (interrupt("write", JOURNAL, "SIGINT", holds=SCORED, nth=3, when="after"),)),
        Round(group, "Ctrl-C while rows are written", (interrupt("replace", "*/data/part*", "SIGINT", nth=2),)),
        Round(group, "SIGTERM while the summary is written", (interrupt("replace", "*/summary.json", "SIGTERM"),)),
        Round(group, "SIGTERM while data/ is exchanged", (interrupt("fsync", "*/.data.????????", "SIGTERM"),)),
        Round(
            group,
            "Ctrl-C twice",
            (Strike(at_request=26, number=signal.SIGINT, twice=True, codes=INTERRUPTED),),
            trouble=hangs,
        ),
        Round(
            group,
            "SIGTERM twice",
            (Strike(at_request=26, number=signal.SIGTERM, twice=True, codes=INTERRUPTED),),
            singly=True,
            trouble=hangs,
        ),
        Round(
            group,
            "Ctrl-C, then SIGKILL in the resume",
            (
                interrupt("write", JOURNAL, "SIGINT", holds=GENERATED, nth=5),
                Strike((at("fsync", nth=2),), may_miss=True),
            ),
        ),
    ]


def _disk() -> list[Round]:
    group = "disk"
    full = "No space left on device (ENOSPC, errno 28); free some space"
    return [
        Round(
            group,
            "full in the middle of a line",
            (fail("write", "*single*/journal.jsonl", "ENOSPC", holds=GENERATED, nth=3, when="half", says=full),),
        ),
        Round(
            group,
            "full from here on",
            (fail("write", "*/journal.jsonl", "ENOSPC", holds=GENERATED, nth=6, lasting=True, says=full),),
            singly=True,
        ),
        Round(group, "full for rows", (fail("write|fsync|replace", "*/data/*", "ENOSPC", codes=(0,), lasting=True),)),
        Round(
            group, "full for all rows", (fail("fsync", "*/.data.*", "ENOSPC", lasting=True, says=full),), singly=True
        ),
        Round(group, "full for the summary", (fail("write", "*/.summary.json*", "ENOSPC", lasting=True, says=full),)),
        Round(group, "full for run.json", (fail("write", "*/.run.json*", "ENOSPC", nth=2, codes=(1, 2)),)),
        Round(
            group,
            "no file may grow beyond 9,000 bytes",
            (Strike((at("size", do="9000"),), STOPPED, says="the file may not grow further"),),
            singly=True,
        ),
        Round(group, "a quota", (fail("write", JOURNAL, "EDQUOT", holds=SCORED, nth=4, says="the quota is used up"),)),
        Round(group, "EIO on a sync", (fail("fsync", JOURNAL, "EIO", nth=4, says="(EIO, errno 5); check the disk"),)),
        Round(group, "EIO on each sync", (fail("fsync", JOURNAL, "EIO", nth=9, lasting=True),), singly=True),
        Round(group, "EIO on a folder's sync", (fail("fsync", "*/data", "EIO", codes=(0, 1)),)),
        Round(group, "EIO on the sync of all rows", (fail("fsync", "*/.data.*/train*", "EIO"),), singly=True),
        Round(group, "EIO on a card", (fail("replace", "*/README.md", "EIO", nth=3, codes=(0, 1)),)),
        Round(
            group,
            "read-only from the beginning",
            (fail("open|mkdir", "*/evals*", "EROFS", lasting=True, codes=(1, 2), says="choose another output folder"),),
        ),
        Round(
            group,
            "read-only from the middle on",
            (fail("open|mkdir|replace|unlink", "out*", "EROFS", nth=20, lasting=True),),
        ),
        Round(
            group, "EIO on the cut of a torn line", (EARLY, Strike((at("ftruncate", do="EIO"),), STOPPED, damage=tear))
        ),
    ]


def _damage() -> list[Round]:
    group = "damage"
    return [
        Round(group, "half a last line", (EARLY, Strike(damage=tear))),
        Round(group, "zeros at the end", (EARLY, Strike(damage=zeros)), singly=True),
        Round(group, "a last line that is no JSON", (EARLY, Strike(damage=nonsense))),
        Round(group, "lines twice", (EARLY, Strike(damage=double))),
        Round(
            group,
            "an older score after a newer one, and both the same",
            (kill("write", holds=SCORED, nth=9), Strike(damage=double)),
        ),
        Round(group, "rows are damaged", (LATER, Strike(damage=spoil_rows))),
        Round(group, "rows are gone", (LATER, Strike(damage=drop_rows))),
        Round(group, "summary.json is gone", (kill("replace", "*/run.json", nth=6), Strike(damage=drop_summary))),
        Round(group, "an empty journal", (kill("write", holds='"type"'),)),
    ]


def named() -> list[Round]:
    """All that have a name."""
    return [*_kills(), *_files(), *_resumes(), *_signals(), *_disk(), *_damage()]


def drawn(seed: int, count: int) -> list[Round]:
    """So many at random, the same ones for the same seed."""
    rng = random.Random(seed)
    return [
        Round("random points", f"{seed}.{number}", _drawn(rng), singly=rng.random() < 0.3) for number in range(count)
    ]


def _drawn(rng: random.Random) -> tuple[Strike, ...]:
    strikes: list[Strike] = []
    for number in range(rng.choice((1, 1, 2, 2, 3))):
        damage = rng.choice((None, tear, zeros)) if number else None
        do = rng.choice(("SIGKILL", "SIGKILL", "SIGTERM", "SIGINT"))
        codes = KILLED if do == "SIGKILL" else INTERRUPTED
        if rng.random() < 0.3:
            # A signal from outside may come before there is anybody to take it.
            number_of = getattr(signal, do)
            strikes.append(Strike((), (*codes, -number_of), damage, rng.randint(1, 90), number_of, may_miss=True))
            continue
        call, path = rng.choice((("write", "out*"), ("fsync", "out*"), ("replace", "out*"), ("write", JOURNAL)))
        rule = at(call, path, do, nth=rng.randint(1, 60), when=rng.choice(("before", "after")))
        if call == "write" and rng.random() < 0.5 and do == "SIGKILL":
            rule["when"] = "half"
        codes = (*codes, -getattr(signal, do))
        strikes.append(Strike((rule,), codes, damage, may_miss=True))
    return tuple(strikes)


# Damage to files


def _journals(runs: Mapping[str, Path]) -> list[Path]:
    paths = [run / "journal.jsonl" for run in runs.values()]
    return [path for path in paths if path.exists() and path.stat().st_size]


def tear(runs: Mapping[str, Path]) -> list[str]:
    """Add half a line to each journal, as a crash in a write leaves it."""
    for path in _journals(runs):
        whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
        last = whole.splitlines(keepends=True)[-1]
        path.write_bytes(whole + last[: len(last) // 2])
    return []


def zeros(runs: Mapping[str, Path]) -> list[str]:
    """Add what some file systems leave after a power cut."""
    for path in _journals(runs):
        with path.open("ab") as file:
            file.write(b"\0" * 700)
    return []


def nonsense(runs: Mapping[str, Path]) -> list[str]:
    """Add a line that is whole, and says nothing."""
    for path in _journals(runs):
        with path.open("ab") as file:
            file.write(b'{"type":"generated","key":\n')
    return []


def double(runs: Mapping[str, Path]) -> list[str]:
    """Add all whole lines once more."""
    from chaos_reader import journal

    keys: list[str] = []
    for path in _journals(runs):
        whole = path.read_bytes().rpartition(b"\n")[0] + b"\n"
        path.write_bytes(whole + whole)
        keys += journal(path.parent).generated
    return keys


def spoil_rows(runs: Mapping[str, Path]) -> list[str]:
    """Cut each parquet file in half."""
    paths = [path for run in runs.values() for path in (run / "data").glob("*.parquet")]
    assert paths, "there are rows to damage"
    for path in paths:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return []


def drop_rows(runs: Mapping[str, Path]) -> list[str]:
    """Remove each first parquet file."""
    firsts = [sorted((run / "data").glob("*.parquet"))[:1] for run in runs.values()]
    assert any(firsts), "there are rows to remove"
    for path in itertools.chain.from_iterable(firsts):
        path.unlink()
    return []


def drop_summary(runs: Mapping[str, Path]) -> list[str]:
    """Remove summaries."""
    paths = [path for run in runs.values() for path in run.glob("summary.json")]
    assert paths, "there are summaries to remove"
    for path in paths:
        path.unlink()
    return []
