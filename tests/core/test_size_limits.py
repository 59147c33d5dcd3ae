"""What others made is read up to a bound, and then refused in words."""

from __future__ import annotations

import asyncio
import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tables import for_each_row

from harness.agents.dataset_files import open_rows
from harness.core import size_limits
from harness.core.errors import ConfigError, DatasetParseError, EnvironmentFault, EnvironmentLoadError, JournalDamaged
from harness.core.errors import StoreError as Unreadable
from harness.core.records import Scored
from harness.envs.sources import read_file
from harness.multi.models import load_models
from harness.multi.persist import list_records
from harness.multi.task_files import load_tasks
from harness.reference.http import BODY_CAP
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer
from harness.settings.endpoints import load_registry
from harness.settings.resolver import resolve
from harness.store import journal
from harness.store.card_head import config_entry, merge_config
from harness.store.find_runs import choose
from harness.store.journal import Journal, JournalReader, read
from harness.store.rundir import RunDir


def hollow(path: Path, size: int) -> Path:
    """A file of that size that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert size_limits.read_whole(path, 10) == b"x" * 10
    with pytest.raises(OSError, match=r"it is larger than 9 bytes, the maximum size") as raised:
        size_limits.read_whole(path, 9)
    assert raised.value.strerror == "it is larger than 9 bytes, the maximum size"


def test_a_file_without_a_size_has_a_bound_too() -> None:
    with pytest.raises(OSError, match="larger than 1 KiB"):
        size_limits.read_whole(Path("/dev/zero"), 1024)


def test_a_text_is_read_as_python_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rthree\n")
    assert size_limits.read_text(path) == path.read_text(encoding="utf-8-sig") == "one\ntwo\nthree\n"


def test_lines_have_a_bound() -> None:
    assert list(size_limits.lines_of(io.BytesIO(b"ab\ncd\n\nef"), 3)) == [b"ab\n", b"cd\n", b"\n", b"ef"]
    with pytest.raises(OSError, match="line 2 is larger than 3 bytes"):
        list(size_limits.lines_of(io.BytesIO(b"ab\nabc\n"), 3))


def test_a_bomb_of_gzip_is_not_unfolded() -> None:
    packed = gzip.compress(b"\0" * 50_000_000, 9)
    assert len(packed) < 100_000
    with pytest.raises(OSError, match="the decompressed content is larger than 1 MiB"):
        size_limits.unzipped(packed, 1 << 20)
    assert size_limits.unzipped(gzip.compress(b"one") + gzip.compress(b"two"), 6) == b"onetwo"


def test_a_bomb_of_parquet_is_not_unfolded(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "bomb.parquet"
    parquet.write_table(pa.table({"prompt": ["x" * 10_000] * 10_000}), path, compression="zstd")
    assert path.stat().st_size < 200_000  # of 100 MB
    with parquet.ParquetFile(path) as file:
        seen: list[int] = []
        with pytest.raises(OSError, match="the decompressed content is larger than 8 MiB"):
            seen.extend(batch.num_rows for batch in size_limits.parquet_batches(file, 8 << 20))
        assert sum(seen) < 900
        assert sum(batch.num_rows for batch in size_limits.parquet_batches(file, 1 << 30)) == 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "use", "error", "words"),
    [
        ("rows.jsonl", size_limits.ROWS + 1, lambda p: list(read_file(str(p), ["a"])), EnvironmentLoadError, "2 GiB"),
        ("rows.json", size_limits.ROWS + 1, open_rows, DatasetParseError, "2 GiB"),
        ("tasks.json", size_limits.ROWS + 1, load_tasks, ConfigError, "2 GiB"),
        ("index.jsonl", size_limits.ROWS + 1, lambda p: list_records(0, p.parent), Unreadable, "2 GiB"),
        ("endpoints.toml", size_limits.DOCUMENT + 1, lambda p: load_registry(p, p.parent), ConfigError, "64 MiB"),
        ("run.json", size_limits.DOCUMENT + 1, lambda p: RunDir(p.parent).read_manifest(), Unreadable, "64 MiB"),
        ("suite.json", size_limits.DOCUMENT + 1, lambda p: choose(p.parent, [str(p)]), Unreadable, "64 MiB"),
        ("summary.json", size_limits.DOCUMENT + 1, lambda p: RunDir(p.parent).read_summary(), Unreadable, "64 MiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_too_large_is_named(
    tmp_path: Path, name: str, size: int, use: Callable[[Path], object], error: type[Exception], words: str
) -> None:
    path = hollow(tmp_path / name, size)
    with pytest.raises(error) as raised:
        use(path)
    assert name in str(raised.value) or name.startswith("rows.json")
    assert f"larger than {words}" in str(raised.value)
    assert "ulimit" not in str(raised.value)


def scored(key: str, said: str) -> Scored:
    return Scored(key, "scored", 1.0, {}, {}, extra={"said": said})


def test_a_record_that_could_not_be_read_again_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINE", 1 << 20)  # 256 MiB take long to make

    async def write() -> None:
        with_room = Journal.open(tmp_path / "journal.jsonl")
        try:
            await with_room.append(scored("one", "x" * 1000))
            with pytest.raises(EnvironmentFault, match=r"^a scored record of 2 MiB is not recorded: a line of the"):
                await with_room.append(scored("two", "x" * (2 << 20)))
            await with_room.append(scored("three", ""))
        finally:
            with_room.close()

    asyncio.run(write())
    assert [record.key for _, record in read(tmp_path / "journal.jsonl")] == ["one", "three"]


def test_a_line_that_never_ends_is_not_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LINE", 1 << 20)
    path = hollow(tmp_path / "journal.jsonl", 1 << 30)
    with JournalReader(path) as reader:
        assert len(reader.line(0)) <= 8 << 20
    with pytest.raises(
        JournalDamaged, match=r"journal\.jsonl:1 \(byte 0\): .*\(it is longer than the limit of 1 MiB\)"
    ):
        list(read(path))


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "words"),
    [
        (BOMB, "expands to more than 25000 values"),
        ("a: &a [*a]\n", "refers to a value that contains it"),
        ("a: " + "[" * 5000 + "]" * 5000 + "\n", "nested too deeply"),
        ("a: " + "x" * 500_001 + "\n", "more than 500000 characters"),
    ],
    ids=["bomb", "loop", "deep", "long"],
)
def test_the_head_of_a_card_from_the_hub_is_no_bomb(head: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        merge_config(head, config_entry("one", "data/*.parquet", default=True))


def test_an_honest_alias_stays() -> None:
    head = "a: &a [x, y]\nb: *a\n"
    assert merge_config(head, config_entry("one", "data/*.parquet", default=True)).startswith(head)


@for_each_row("packed", [False, True])
def test_a_request_to_bench_serve_has_a_bound_also_without_a_length(packed: bool) -> None:
    async def pieces() -> Any:
        for _ in range(2 + BODY_CAP // (1 << 20)):
            yield b" " * (1 << 20)

    async def ask() -> tuple[int, str]:
        server = ReferenceServer()
        url = await server.start()
        try:
            async with aiohttp.ClientSession() as session:
                headers = {"Content-Encoding": "gzip"} if packed else {}
                data: Any = gzip.compress(b" " * (BODY_CAP + 1), 9) if packed else pieces()
                async with session.post(f"{url}/chat/completions", data=data, headers=headers) as reply:
                    return reply.status, (await reply.json())["error"]["code"]
        finally:
            await server.stop()

    assert asyncio.run(ask()) == (413, "too_large")


def test_a_registry_in_python_is_read_and_not_run(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.py"
    for text in (
        "ENDPOINTS = " + "(" * 5000 + ")" * 5000,
        "ENDPOINTS = " + "-" * 20_000 + "1",
        f"ENDPOINTS = {{'a': __import__('os').mkdir({str(tmp_path / 'made')!r})}}",
        "ENDPOINTS = {'a': 9**9**9}",
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"endpoints\.py"):
            load_registry(path, tmp_path)
    assert os.listdir(tmp_path) == ["endpoints.py"]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("suite.toml", lambda p: resolve(str(p), {})),
        ("endpoints.toml", lambda p: load_registry(p, p.parent)),
        ("tasks.toml", load_tasks),
        ("models.toml", load_models),
        ("script.toml", lambda p: fault_script(file=p)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_settings_that_are_nested_too_deeply_are_refused(
    tmp_path: Path, name: str, use: Callable[[Path], object]
) -> None:
    path = tmp_path / name
    path.write_text("a = " + "[" * 50_000 + "]" * 50_000 + "\n")
    with pytest.raises(ConfigError, match=name):
        use(path)
