"""Export of a run to an Inspect eval log, for `inspect view` and `inspect_ai.log`. Writes the `.eval` (zip) and `.json`
files; `inspect_header`, `inspect_sample` and `inspect_messages` create the content. Does not need Inspect. Samples are
first written to a temporary file, to limit memory: the log's header precedes them, but is complete only after the last
sample."""

from __future__ import annotations

import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from harness.core.types import JsonDict
from harness.plugins.exports.foreign import Source, json_bytes
from harness.plugins.exports.inspect_header import LOG_VERSION, Totals, header_of
from harness.plugins.exports.inspect_sample import sample_of, summary_of
from harness.store.export_formats import Exported
from harness.store.rundir import RunDir, safe_name

_LEVEL = 3
"""Compression level; higher levels hardly reduce the size and take several times as long."""

_LISTED = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}[:-]\d{2}[:-]\d{2}")
"""Pattern of a time at the start of a file name. Inspect lists every `.eval` file as a log, but a `.json` file only if
its name begins with such a time."""


def write(run: RunDir, target: Path) -> Exported:
    """Write a run as an Inspect log: as JSON if the file name ends in `.json`, else in the `.eval` format.

    Args:
        run: The run.
        target: The file; must not exist.

    Raises:
        StoreError: the run cannot be read.
        OSError: the file cannot be written.
    """
    source, totals = Source.read(run), Totals()

    def samples() -> Iterator[JsonDict]:
        for outcome in source.outcomes():
            totals.add(outcome)
            yield sample_of(outcome, totals.ids.of(outcome.example), source)

    is_json = target.suffix.lower() == ".json"
    (_write_json if is_json else _write_eval)(target, samples(), lambda: header_of(source, totals))
    notes: list[str] = []
    if unscored := sum(source.summary.unscored.values()):
        notes.append(
            f"{unscored} rollouts have no score: the log has NaN or an error for them, and its means exclude them"
        )
    if is_json and not _LISTED.match(target.name):
        name = f"{source.manifest.created[:19].replace(':', '-')}_{safe_name(source.manifest.env_id)}.json"
        notes.append(f"inspect view lists a .json log only if its name begins with the time of the run, as in {name}")
    return Exported((target,), totals.generated + totals.failed, tuple(notes))


def _write_eval(target: Path, read: Iterator[JsonDict], make_header: Callable[[], JsonDict]) -> None:
    packed = zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)
    with tempfile.TemporaryFile(dir=target.parent) as summaries, packed as archive:
        for sample in read:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json_bytes(sample))
            summaries.write((b",\n" if summaries.tell() else b"[") + json_bytes(summary_of(sample)))
        summaries.write(b"]" if summaries.tell() else b"[]")
        header = make_header()
        start = {"version": LOG_VERSION, "eval": header["eval"], "plan": header["plan"]}
        archive.writestr("_journal/start.json", json_bytes(start))
        with archive.open("summaries.json", "w", force_zip64=True) as member:
            _copy(summaries, member)
        archive.writestr("header.json", json_bytes(header))


def _write_json(target: Path, read: Iterator[JsonDict], make_header: Callable[[], JsonDict]) -> None:
    with tempfile.TemporaryFile(dir=target.parent) as samples, target.open("xb") as file:
        for sample in read:
            samples.write((b",\n" if samples.tell() else b"") + json_bytes(sample))
        file.write(json_bytes(make_header()).removesuffix(b"}") + b',"samples":[')
        _copy(samples, file)
        file.write(b"]}\n")


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    source.seek(0)
    shutil.copyfileobj(source, target, 1 << 20)
