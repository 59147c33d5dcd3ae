"""What a journal holds, in few bytes; and which run may go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import PEAK, example, failed, generated, key, make_run, python, scored, write

from harness.core.errors import JournalDamaged, StoreError
from harness.core.keys import KeyIndex
from harness.core.messages import Message
from harness.core.records import Example
from harness.store.codec import encode
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded
from harness.store.manifest import Manifest
from harness.store.resume import differences, find_resumable, missing_examples, resume_obstacle


def spelled(messages: Sequence[Message]) -> list[str]:
    """The texts of messages."""
    return [str(each) for each in messages]


def test_the_newest_line_of_a_rollout_wins(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    offsets = write(
        path,
        [
            example(0),
            generated(0, 0),  # 1: scored, then scored again
            scored(0, 0),
            generated(0, 1),  # 3: waits
            failed(0, 2),  # 4: failed, then made after all
            failed(0, 3, retryable=False),  # 5
            generated(0, 2),  # 6
            scored(0, 0, reward=None),  # 7
            failed(0, 4),  # 8
            generated(0, 4),  # 9
            scored(0, 4),
            failed(0, 4),  # 11: whatever brought it about, it is newer
        ],
    )
    recorded = Recorded.load(path)
    assert recorded.end == path.stat().st_size and len(recorded) == 5 and recorded.example_count == 1
    assert [recorded.status(key("rollout", 0, n)) for n in range(6)] == [
        "unscored", "generated", "generated", "failed", "failed", None,
    ]  # fmt: skip
    assert [recorded.generated_at(key("rollout", 0, n)) for n in range(6)] == [
        offsets[1], offsets[3], offsets[6], None, None, None,
    ]  # fmt: skip
    assert [recorded.scored_at(key("rollout", 0, n)) for n in range(6)] == [offsets[7], None, None, None, None, None]
    assert [recorded.failed_at(key("rollout", 0, n)) for n in range(6)] == [
        None, None, None, offsets[5], offsets[11], None,
    ]  # fmt: skip
    assert recorded.counts() == {"generated": 2, "scored": 0, "unscored": 1, "failed": 2, "budget": 0}
    with JournalReader(path) as reader:
        assert reader.record(offsets[6]) == generated(0, 2)


def test_examples_come_in_the_order_of_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [example(n) for n in (2, 0, 7)]
    write(path, lines)
    recorded = Recorded.load(path)
    assert list(recorded.examples()) == lines
    assert recorded.example_index(key("example", 7)) == 7
    assert recorded.example_index("never seen") is None
    assert (recorded.example_number(key("example", 0)), recorded.example_number(key("example", 1))) == (1, None)


def test_two_examples_never_share_a_place(tmp_path: Path) -> None:
    """Rows that the dataset got before the recorded ones give an index a second time."""
    path = tmp_path / "journal.jsonl"
    inserted = Example("new", 9, "a", index=0)
    write(path, [example(0), example(1), generated(0), generated(1), inserted, example(2), generated(2)])
    recorded = Recorded.load(path)
    assert [recorded.example_index(k) for k in (key("example", 0), key("example", 1), "new")] == [0, 1, 2]
    places = {recorded.place(number) for number in range(len(recorded))}
    assert places == {(0, 0), (1, 0), (3, 0)}


def test_what_is_added_later_is_read_from_there_on(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, [example(0), generated(0, 0)])
    recorded = Recorded.load(path)
    with path.open("ab") as file:
        file.write(encode(scored(0, 0))[:10])
    assert list(recorded.advance()) == []
    offsets = write(path, [scored(0, 0), generated(0, 1)])
    assert [(number, offset) for number, offset, _ in recorded.advance()] == [(0, offsets[0]), (1, offsets[1])]
    assert recorded.is_done(0) and not recorded.is_done(1)
    assert list(recorded.advance()) == []


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ([generated(0)], r"jsonl:1 .*no earlier line contains the example"),
        ([example(0), scored(0)], r"jsonl:2 .*no earlier line contains the rollout"),
    ],
)
def test_lines_that_contradict_one_another_are_damage(tmp_path: Path, lines: list[Example], where: str) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, lines)
    with pytest.raises(JournalDamaged, match=where):
        Recorded.load(path)


def test_a_long_journal_is_found_whole(tmp_path: Path) -> None:
    """Its size is estimated after the first MiB, here from short lines that are followed by long ones."""
    path = tmp_path / "journal.jsonl"
    rollouts = [(n, generated(n, state={"pad": "x" * (9 if n < 3000 else 3000)})) for n in range(4000)]
    offsets = write(path, [line for n, rollout in rollouts for line in (example(n), rollout)])
    recorded = Recorded.load(path)
    assert (len(recorded), recorded.example_count) == (4000, 4000)
    assert [recorded.generated_at(key("rollout", n, 0)) for n in range(4000)] == offsets[1::2]


def test_a_journal_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot read .*journal\.jsonl.*ENOENT"):
        Recorded.load(tmp_path / "journal.jsonl")


@given(
    st.lists(st.text(max_size=5) | st.integers(0, 40).map(key), max_size=200), st.integers(0, 200), st.integers(0, 5000)
)
def test_the_key_index_numbers_like_a_dict(keys: list[str], at: int, expected: int) -> None:
    index, model = KeyIndex(), dict[str, int]()
    for place, each in enumerate(keys):
        if place == at:
            index.expect(expected)
        assert index.find(each) == model.get(each, -1)
        assert index.add(each) == model.setdefault(each, len(model))
    assert len(index) == len(model)


def test_the_key_index_grows() -> None:
    index = KeyIndex()
    assert [index.add(key(n)) for n in range(5000)] == list(range(5000))
    assert [index.find(key(n)) for n in range(5000)] == list(range(5000))
    assert index.find(key(5000)) == -1


IDENTITY = {
    "env": {"env_id": "sums", "env_args": {"split": "test", "n": [1, 2]}, "source": "abc"},
    "model": {"name": "m", "url": "https://me:pw123456@host/v1", "sampling_args": {"temperature": 0.0}},
}


def changed(path: str, value: object) -> dict[str, object]:
    import copy

    identity = copy.deepcopy(IDENTITY)
    *parents, last = path.split(".")
    table: dict[str, object] = identity  # type: ignore[assignment]
    for name in parents:
        table = table[name]  # type: ignore[assignment]
    if value is None:
        del table[last]
    else:
        table[last] = value
    return identity  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        ("env.env_args.split", "train", 'env.env_args.split was "test", now "train"'),
        ("env.env_args.n", [2, 1], "env.env_args.n was [1,2], now [2,1]"),
        ("env.env_args.n", None, "env.env_args.n was [1,2], now not set"),
        ("env.source", "abd", 'env.source was "abc", now "abd"'),
        ("model.sampling_args.temperature", 1.0, "model.sampling_args.temperature was 0.0, now 1.0"),
        ("model.sampling_args.top_p", 0.9, "model.sampling_args.top_p was not set, now 0.9"),
        ("model.name", "n", 'model.name was "m", now "n"'),
        ("model.url", "https://h/v1", 'model.url was "https://[redacted]@host/v1", now "https://h/v1"'),
    ],
)
def test_a_changed_setting_is_named(tmp_path: Path, path: str, value: object, line: str) -> None:
    run = make_run(tmp_path, identity=IDENTITY)
    asked = Manifest("", "sums", "lab/m-1", "sums", identity=changed(path, value))
    assert spelled(differences(run.read_manifest().identity, asked.identity)) == [line]
    assert find_resumable(run.parent, asked) is None
    assert str(resume_obstacle(run.parent, asked)) == f"{run.id} in {run.parent} cannot be resumed: {line}."


def test_the_newest_run_with_an_equal_identity_goes_on(tmp_path: Path) -> None:
    asked = Manifest("", "sums", "lab/m-1", "sums", identity=IDENTITY, planned={"num_examples": 9})
    parent = tmp_path / "evals" / "sums--lab--m-1"
    assert find_resumable(parent, asked) is None and resume_obstacle(parent, asked) is None
    runs = [
        make_run(
            tmp_path, identity=identity, created=f"2026-01-01T00:00:00.{n:06d}Z", planned={"num_examples": 5}, **more
        )
        for n, (identity, more) in enumerate(
            [(IDENTITY, {}), (IDENTITY, {}), (changed("model.name", "n"), {}), (IDENTITY, {"name": "sums-hot"})]
        )
    ]
    for run in runs:  # the order must not hang on which second the test ran in
        run.path.rename(run.parent / f"20260101T000000Z-{run.id[-4:]}")
    assert find_resumable(parent, asked) == parent / f"20260101T000000Z-{runs[1].id[-4:]}"
    assert differences(IDENTITY, IDENTITY) == ()


def test_examples_that_are_gone_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, [example(n) for n in range(100)])
    recorded = Recorded.load(path)

    def keys(start: int) -> Iterator[str]:
        return (key("example", n) for n in range(start, start + 200))

    assert missing_examples(recorded, keys(0)) is None
    message = missing_examples(recorded, keys(87))
    assert str(message).startswith("87 of 100 recorded examples are gone")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc here")
def test_a_large_journal_takes_few_bytes_a_rollout(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with path.open("wb") as file:
        for n in range(100_000):
            file.write(encode(example(n)) + encode(generated(n)) + encode(scored(n)))
    code = """
import sys
from pathlib import Path
from harness.store.journal import JournalReader
from harness.store.journal_index import Recorded
before = peak()
recorded = Recorded.load(Path(sys.argv[1]))
print(len(recorded), peak() - before)
"""
    child = python(PEAK + code, path)
    count, grown = child.stdout.split()
    assert int(count) == 100_000 and float(grown) < 30, child.stdout + child.stderr


def test_hashes_of_code_are_not_shown() -> None:
    old, new = {"env": {"source": "0" * 64, "n": 1}}, {"env": {"source": "f" * 64, "n": 2}}
    assert spelled(differences(old, new)) == ["env.source has changed", "env.n was 1, now 2"]
    assert spelled(differences(old, {"env": {"n": 1}})) == [f'env.source was "{"0" * 64}", now not set']


def test_a_run_that_may_be_the_one_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    manifest = run.read_manifest()
    run.manifest_path.write_text('{"schema_version": 1, "id"')
    assert find_resumable(run.parent, manifest) is None
    obstacle = resume_obstacle(run.parent, manifest)
    assert str(obstacle).startswith(f"{run.id} in {run.parent} cannot be resumed: cannot read ")


def test_a_secret_that_must_be_given_again_says_so() -> None:
    assert spelled(differences({"headers": {"X-Api-Key": "[redacted]"}}, {"headers": {}})) == [
        'headers.X-Api-Key was "[redacted]" (secrets are not recorded: give it again), now not set'
    ]
