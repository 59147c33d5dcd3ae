"""The journal's promises: what is acknowledged is on disk, what is on disk is read back, and nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import example, failed, generated, key, python, records, scored, write

from harness.core.errors import EnvironmentFault, JournalDamaged, StoreError
from harness.core.records import Record, Scored
from harness.store.atomic import durable_sync
from harness.store.codec import encode
from harness.store.journal import Journal, JournalReader, read

LINES = [example(0), generated(0), scored(0), failed(0, 1), example(1), generated(1), scored(1, reward=None)]


def test_what_was_appended_is_read_back_with_its_offset(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    offsets = write(path, LINES)
    assert records(path) == LINES
    assert [offset for offset, _ in read(path)] == offsets
    with JournalReader(path) as reader:
        assert [reader.record(offset) for offset in offsets] == LINES
    assert list(read(path, offsets[3])) == list(zip(offsets, LINES, strict=True))[3:]


def test_a_line_is_acknowledged_only_after_it_was_written_and_then_synced(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    events: list[str] = []

    async def main() -> None:
        size = 0
        waiting: list[asyncio.Future[int]] = []

        def sync(fd: int) -> None:
            nonlocal size
            if waiting:
                grown = os.fstat(fd).st_size
                assert grown > size, "fsync came before the write"
                size = grown
                events.append("acknowledged early" if any(future.done() for future in waiting) else "fsync")
            durable_sync(fd)

        journal = Journal.open(path, fsync=sync)
        for record in LINES:
            future = journal.submit(record)
            future.add_done_callback(lambda _: events.append("acknowledged"))
            waiting.append(future)
            await future
            waiting.clear()
        journal.close()

    asyncio.run(main())
    assert events == ["fsync", "acknowledged"] * len(LINES)


def test_lines_that_gather_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    """One write, one sync and one wake-up of the loop for a whole batch, acknowledged in order."""
    path = tmp_path / "journal.jsonl"
    first_sync, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def sync(fd: int) -> None:
        sizes.append(os.fstat(fd).st_size)
        first_sync.set()
        assert go_on.wait(30)

    async def main() -> list[int]:
        journal = Journal.open(path, fsync=sync)
        futures = [journal.submit(example(0))]
        assert await asyncio.to_thread(first_sync.wait, 30)
        order: list[int] = []
        for index in range(1, 200):
            futures.append(journal.submit(example(index)))
            futures[-1].add_done_callback(lambda future: order.append(future.result()))
        assert not any(future.done() for future in futures)
        go_on.set()
        offsets = [await future for future in futures]
        journal.close()
        await asyncio.sleep(0)  # callbacks run one turn after their futures
        assert order == offsets[1:]
        return offsets

    offsets = asyncio.run(main())
    assert sizes == [offsets[1], path.stat().st_size]
    assert offsets == sorted(offsets)


def test_a_failed_sync_acknowledges_nothing_and_stops_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    broken = False

    def sync(fd: int) -> None:
        if broken:
            raise OSError(5, "Input/output error")
        durable_sync(fd)

    async def main() -> None:
        nonlocal broken
        journal = Journal.open(path, fsync=sync)
        await journal.append(example(0))
        broken = True
        futures = [journal.submit(example(index)) for index in range(1, 20)]
        for future in futures:
            with pytest.raises(StoreError, match=r"journal\.jsonl.*EIO, errno 5"):
                await future
        broken = False
        with pytest.raises(StoreError, match="EIO"):
            await journal.append(example(99))
        with pytest.raises(StoreError, match="EIO"):
            await journal.flush()
        with pytest.raises(StoreError, match="EIO"):
            journal.close()

    asyncio.run(main())
    assert records(path)[0] == example(0)


def test_a_failure_of_any_kind_leaves_nobody_waiting(tmp_path: Path) -> None:
    calls = 0

    def sync(fd: int) -> None:
        nonlocal calls
        calls += 1
        raise MemoryError("out of memory")

    async def main() -> None:
        journal = Journal.open(tmp_path / "journal.jsonl", fsync=sync)
        async with asyncio.timeout(30):
            with pytest.raises(StoreError, match="out of memory"):
                await journal.append(example(0))

    asyncio.run(main())
    assert calls == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path) -> None:

    async def main() -> None:
        journal = Journal(tmp_path / "journal.jsonl", os.open("/dev/full", os.O_WRONLY), 0, os.fsync)
        with pytest.raises(
            StoreError, match=r"journal\.jsonl: No space left on device \(ENOSPC, errno 28\); free some"
        ):
            await journal.append(example(0))

    asyncio.run(main())


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from store_samples import example, generated, scored
from harness.core.errors import StoreError
from harness.store.journal import Journal

async def main():
    path = Path(sys.argv[1])
    journal = Journal.open(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    done = 0
    try:
        await journal.append(example(0))
        for rollout in range(1000):
            await journal.append(generated(0, rollout))
            done += 1
    except StoreError as error:
        print(done, error)

asyncio.run(main())
"""


def test_a_write_that_is_cut_short_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    """A real limit in a real process: the last write(2) takes a part of its line, the next one fails."""
    path = tmp_path / "journal.jsonl"
    child = python(LIMITED, path, PYTHONPATH=os.pathsep.join(sys.path))
    assert child.returncode == 0, child.stderr
    acknowledged, _, message = child.stdout.partition(" ")
    assert "EFBIG" in message and "ulimit" in message
    assert path.stat().st_size == 20_000 and not path.read_bytes().endswith(b"\n")
    assert records(path) == [example(0), *(generated(0, r) for r in range(int(acknowledged)))]
    write(path, [scored(0)])
    assert records(path)[-1] == scored(0)
    assert len(records(path)) == int(acknowledged) + 2


def test_short_writes_are_completed(tmp_path: Path) -> None:
    """A pipe takes at most its free space at once, so a large line needs several write(2)."""
    out, into = os.pipe()
    os.set_blocking(into, True)
    line = encode(example(0, answer="x" * 1_000_000))
    received: list[bytes] = []

    def drain() -> None:
        while chunk := os.read(out, 4096):
            received.append(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    from harness.store.atomic import write_all

    write_all(into, line)
    os.close(into)
    reader.join(30)
    os.close(out)
    assert b"".join(received) == line


def test_a_read_only_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    folder.chmod(0o555)
    code = """
import os, sys
from pathlib import Path
from harness.core.errors import StoreError
from harness.store.journal import Journal
if os.getuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    Journal.open(Path(sys.argv[1]) / "journal.jsonl")
except StoreError as error:
    print(error)
"""
    # The child may be another user, for whom pytest's folder is private.
    for parent in (tmp_path, *tmp_path.parents):
        if parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    child = python(code, folder)
    assert "cannot open" in child.stdout and "EACCES" in child.stdout, child.stderr


# Hypothesis makes the lines; every byte of the file's tail is a place where the power may go.
text = st.text(max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
a_record = st.one_of(
    st.builds(lambda n, info: example(n, info=info), st.integers(0, 5), st.dictionaries(text, json_values, max_size=3)),
    st.builds(
        lambda n, r, said, state: generated(n, r, completion=[{"role": "assistant", "content": said}], state=state),
        st.integers(0, 5), st.integers(0, 3), text, st.dictionaries(text, json_values, max_size=3),
    ),
    st.builds(lambda n, reward: scored(n, reward=reward), st.integers(0, 5), st.none() | st.floats(0, 1)),
    st.builds(lambda n, error: failed(n, error=error), st.integers(0, 5), text),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(a_record, min_size=1, max_size=4),
    more=st.lists(a_record, min_size=1, max_size=2),
    at=st.floats(0, 1, exclude_max=True),
)
def test_cut_anywhere_what_was_whole_is_read_and_nothing_else(
    lines: list[Record], more: list[Record], at: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        last = write(path, lines)[-1]
        whole = path.read_bytes()
        for cut in range(len(whole), last - 1, -1):
            os.truncate(path, cut)
            assert records(path) == (lines if cut == len(whole) else lines[:-1])
        path.write_bytes(whole[: last + int(at * (len(whole) - last))])
        write(path, more)
        assert records(path) == [*lines[:-1], *more]


@pytest.mark.parametrize(
    "tail",
    [
        b"{",
        b'{"type":"scored","key":"',
        b"\x00" * 4096,
        b'{"type":"sco\x00\x00\x00\n',
        b"\xff\xfe\n",
        b'{"type":"x"}\n'[:-1],
    ],
)
def test_torn_tail_then_append_then_torn_again(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, LINES[:3])
    for number in range(2):
        with path.open("ab") as file:
            file.write(tail)
        assert records(path) == LINES[: 3 + number]
        write(path, [LINES[3 + number]])
        assert records(path) == LINES[: 4 + number]
    assert path.read_bytes().count(b"\n") == 5


def test_a_tail_is_cut_durably_before_anything_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    offsets = write(path, LINES[:3])
    good = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"type":"scored"')
    sizes: list[int] = []
    journal = Journal.open(path, fsync=lambda fd: sizes.append(os.fstat(fd).st_size))
    assert sizes == [good]
    assert journal.synced == good
    journal.close()
    assert [offset for offset, _ in read(path)] == offsets


@pytest.mark.parametrize("damage", [b"\n", b"\x00\x00\x00\n", b'{"type":"scored"\n', b"[1]\n", b"17\n"])
def test_damage_in_the_middle_stops_with_file_and_line(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    write(path, LINES[:3])
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(lines[0] + damage + lines[1] + lines[2])
    before = path.read_bytes()
    attempts: list[Callable[[], object]] = [
        lambda: list(read(path)),
        lambda: Journal.open(path),
        lambda: list(read(path, len(lines[0]))),
    ]
    for attempt in attempts:
        with pytest.raises(JournalDamaged, match=rf"journal\.jsonl:2 \(byte {len(lines[0])}\)"):
            attempt()
    assert path.read_bytes() == before


def test_a_line_that_is_no_record_is_damage_even_at_the_end(tmp_path: Path) -> None:
    """It is whole JSON, so no torn write made it: cutting it would hide a bug."""
    path = tmp_path / "journal.jsonl"
    write(path, LINES[:1])
    with path.open("ab") as file:
        file.write(b'{"type":"generated","key":5}\n')
    with pytest.raises(JournalDamaged, match=r"journal\.jsonl:2 .*not a generated line"):
        records(path)


def test_a_line_of_a_newer_version_is_refused_and_its_fields_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    line = encode(generated()).replace(b'"attempts":1', b'"attempts":1,"mood":"calm"')
    path.write_bytes(line.replace(b'"requests":1', b'"requests":1,"joules":3'))
    assert records(path) == [generated()]
    with path.open("ab") as file:
        file.write(b'{"type":"regretted","key":"k"}\n')
    with pytest.raises(StoreError, match=r"journal\.jsonl:2: line type 'regretted' is not known.*update bench"):
        records(path)


def test_unicode_line_separators_do_not_split_lines(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\r\nh"
    lines = [example(0, answer=odd), generated(0, completion=odd), scored(0, reasons={odd: odd})]
    write(path, lines)
    assert records(path) == lines
    assert path.read_bytes().count(b"\n") == 3


def test_a_record_that_is_no_json_harms_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    async def main() -> None:
        journal = Journal.open(path)
        await journal.append(example(0))
        with pytest.raises(EnvironmentFault, match=r"generated record .* JSON cannot represent a value of type object"):
            await journal.append(generated(0, state={"session": object()}))
        await journal.append(generated(0))
        journal.close()
        journal.close()
        with pytest.raises(StoreError, match="is closed"):
            await journal.append(scored(0))

    asyncio.run(main())
    assert records(path) == [example(0), generated(0)]


def test_a_cancelled_append_is_still_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    async def main() -> None:
        journal = Journal.open(path)
        future = journal.submit(example(0))
        future.cancel()
        await journal.append(example(1))
        journal.close()

    asyncio.run(main())
    assert records(path) == [example(0), example(1)]


def test_close_drains_what_is_queued(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    async def main() -> list[int]:
        journal = Journal.open(path)
        futures = [journal.submit(example(index)) for index in range(100)]
        journal.close()
        assert len(records(path)) == 100
        return [await future for future in futures]

    assert len(asyncio.run(main())) == 100


def test_a_record_is_written_as_it_was_when_submitted(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    async def main() -> None:
        journal = Journal.open(path)
        rollout = generated(0)
        future = journal.submit(rollout)
        rollout.state["turn"] = 2
        await future
        journal.close()

    asyncio.run(main())
    assert records(path) == [generated(0)]


KILLED = """
import asyncio, sys
from pathlib import Path
from store_samples import example, generated
from harness.store.journal import Journal

async def main():
    journal = Journal.open(Path(sys.argv[1]))
    start = int(sys.argv[2])
    if start == 0:
        await journal.append(example(0))

    async def worker(number):
        for rollout in range(start + number, start + 100_000, 8):
            await journal.append(generated(0, rollout))
            print(rollout, flush=True)

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(worker(number))

asyncio.run(main())
"""


def test_killed_three_times_every_acknowledged_line_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    acknowledged: list[int] = []
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for attempt in range(3):
        command = [sys.executable, "-c", KILLED, str(path), str(attempt * 1_000_000)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as child:
            assert child.stdout is not None
            acknowledged.extend(int(child.stdout.readline()) for _ in range(20 + 7 * attempt))
            child.send_signal(signal.SIGKILL)
            acknowledged.extend(int(line) for line in child.stdout if line.endswith("\n"))
        with path.open("ab") as file:
            file.write(b'{"type":"generated","key":"torn')
    found = [record.key for record in records(path)[1:] if not isinstance(record, Scored)]
    assert len(found) == len(set(found))
    assert {key("rollout", 0, rollout) for rollout in acknowledged} <= set(found)


def test_the_reader_finds_lines_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [example(n, answer="x" * size) for n, size in enumerate([0, 7_900, 8_192, 70_000, 1_000_000])]
    offsets = write(path, lines)
    with JournalReader(path) as reader:
        assert [reader.record(offset) for offset in reversed(offsets)] == lines[::-1]
        with pytest.raises(JournalDamaged, match=r"journal\.jsonl"):
            reader.record(offsets[1] + 1)


@given(
    sizes=st.lists(st.sampled_from([1, 40, 4_000, 65_530, 65_540, 140_000]), min_size=1, max_size=25),
    data=st.data(),
)
def test_a_reader_finds_each_line_while_lines_are_added(sizes: list[int], data: st.DataObject) -> None:
    """Lines lie across the blocks that a reader keeps, and the block at the end grows after it was read."""
    lines = [b"%d" % number * size for number, size in enumerate(sizes)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        path.touch()
        offsets: list[int] = []
        with JournalReader(path) as reader, path.open("ab", buffering=0) as file:
            for line in lines:
                offsets.append(file.tell())
                half = data.draw(st.integers(0, len(line)))
                file.write(line[:half])
                asked = data.draw(st.lists(st.integers(0, len(offsets) - 2), max_size=6)) if len(offsets) > 1 else []
                assert [reader.line(offsets[number]) for number in asked] == [lines[number] for number in asked]
                reader.line(offsets[-1])  # not whole yet
                file.write(line[half:] + b"\n")
            assert [reader.line(offset) for offset in offsets] == lines


def test_a_journal_that_somebody_removes_stops_the_run(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"

    async def main() -> None:
        journal = Journal.open(path)
        await journal.append(LINES[0])
        path.rename(tmp_path / "moved.jsonl")
        await journal.append(LINES[1])  # elsewhere, but kept
        (tmp_path / "moved.jsonl").unlink()
        for record in LINES[2:4]:  # the first is not acknowledged, and no later one is taken
            with pytest.raises(StoreError, match=r"journal\.jsonl was removed during the run"):
                await journal.append(record)
        with pytest.raises(StoreError, match="was removed"):
            journal.close()

    asyncio.run(main())


def test_what_is_before_the_damage_can_be_kept_as_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    offsets = write(path, LINES)
    content = bytearray(path.read_bytes())
    content[offsets[3] : offsets[4]] = bytes(offsets[4] - offsets[3])  # zeros in the middle of what was in flight
    path.write_bytes(content)
    with pytest.raises(JournalDamaged) as caught:
        records(path)
    assert f"truncate -s {offsets[3]} journal.jsonl" in str(caught.value)
    os.truncate(path, offsets[3])
    write(path, LINES[3:])
    assert records(path) == LINES
