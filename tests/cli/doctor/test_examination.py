"""What is looked at for which words, and how the checks are made together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from curt_server import CurtServer

from harness.cli.doctor.examination import (
    AREAS,
    CheckOptions,
    _Abandoned,  # pyright: ignore[reportPrivateUsage]
    _guarded,  # pyright: ignore[reportPrivateUsage]
    examine,
)
from harness.cli.doctor.findings import Diagnosis, DoctorReport, note, ok, problem
from harness.cli.doctor.subject import find_subject

REGISTRY = """
[[endpoint]]
endpoint_id = "one"
model = "model-one"
url = "http://127.0.0.1:1/v1"

[[endpoint]]
endpoint_id = "one"
model = "model-one"
url = "http://127.0.0.1:2/v1"

[[endpoint]]
endpoint_id = "two"
url = "https://api.example.org/v1"
key = "TWO_KEY"
headers = {"X-Api-Key" = "canary-header-0123456789"}

[[endpoint]]
endpoint_id = "again"
model = "model-one"
url = "http://127.0.0.1:1/v1/"
"""


@pytest.fixture
def registry(plain: Path) -> Path:
    (plain / "configs").mkdir()
    path = plain / "configs" / "endpoints.toml"
    path.write_text(REGISTRY)
    return path


def asked(target: str | None = None, *, registry: bool = False, **flags: object) -> list[tuple[str, str, bool]]:
    subject = find_subject(target, flags, registry=registry)
    return [(each.name, each.whom, each.is_asked) for each in subject.asked]


def test_without_a_target_it_is_the_model_that_runs_would_ask() -> None:
    whom = "the default model of runs"
    assert asked() == [("openai/gpt-4.1-mini at api.pinference.ai", whom, False)]
    assert asked(model="m", api_base_url="http://localhost:8000/v1") == [("m at localhost:8000", "m", True)]
    assert asked(model="reference/null") == [("reference/null", "reference/null", True)]


def test_every_endpoint_of_the_registry_is_asked_once(registry: Path) -> None:
    everything = [
        ("model-one at 127.0.0.1:1", "one, again", True),
        ("model-one at 127.0.0.1:2", "one", True),
        ("two at api.example.org", "two", True),
    ]
    assert asked(registry=True) == everything
    assert asked(model="two") == [("two at api.example.org", "two", True)]
    assert asked(model="two", registry=True) == [everything[2], *everything[:2]]
    registry.rename("elsewhere.toml")
    assert asked(registry=True, endpoints_path="elsewhere.toml") == everything
    assert find_subject(None, {}, registry=True).findings[0].name == "registry"


def test_the_runs_of_a_target_say_what_is_looked_at(registry: Path) -> None:
    Path("one_env.py").write_text("def load_environment(): ...\n")
    Path("suite.toml").write_text(
        '[save]\noutput_dir = "there"\n'
        '[[eval]]\nenv_id = "./one_env.py"\nmodel = "one"\nmax_concurrent = 7\n'
        '[[eval]]\nenv_id = "./one_env.py"\nname = "other"\nmodel = "two"\nsave_to_hf_hub = true\n'
        'hf_hub_dataset_name = "lab/x"\n'
    )
    subject = find_subject("suite.toml", {})
    assert [(each.status, each.says) for each in subject.findings] == [("ok", "2 runs, all settings are valid")]
    assert [each.name for each in subject.asked] == [
        "model-one at 127.0.0.1:1", "model-one at 127.0.0.1:2", "two at api.example.org",
    ]  # fmt: skip
    assert [each.endpoint.key_var for each in subject.asked if each.endpoint.key_var] == ["TWO_KEY"]
    assert subject.output_dirs == [Path("there")]
    assert subject.pushes == ["lab/x"]
    assert subject.in_flight == 7 + 32
    assert [each.env_id for each in subject.environments] == ["./one_env.py"]
    changed = find_subject("suite.toml", {}, ["output_dir=elsewhere"])
    assert changed.output_dirs == [Path("elsewhere")]


def test_what_cannot_be_resolved_is_a_problem_and_the_rest_is_looked_at() -> None:
    Path("one_env.py").write_text("def load_environment(): ...\n")
    subject = find_subject("./one_env.py, nothing-like-it,./gone.py", {"model": "reference/oracle"})
    assert [(each.area, each.name, each.status) for each in subject.findings] == [
        ("settings", "nothing-like-it", "problem"), ("settings", "./gone.py", "problem"),
    ]  # fmt: skip
    assert subject.findings[0].fix.startswith("`bench env install PATH` installs an environment from its folder")
    assert [each.env_id for each in subject.environments] == ["./one_env.py"]
    [found] = find_subject("gone.toml", {}).findings
    assert (found.name, found.status, found.says) == ("gone.toml", "problem", "no such file")


@pytest.mark.parametrize("flags", [{"api_base_url": "nonsense"}, {"api_key_var": "not a name"}], ids=str)
def test_a_flag_that_cannot_be_is_a_problem(flags: dict[str, object]) -> None:
    [found] = find_subject(None, flags).findings
    assert (found.area, found.status) == ("settings", "problem")


def test_offline_sends_nothing_and_says_what_it_has_not_asked() -> None:
    announced: list[str] = []
    with CurtServer() as server:
        subject = find_subject(None, {"model": "m", "api_base_url": server.url})
        report = examine(subject, CheckOptions(offline=True, hub=True), announced.extend)
        assert server.asked == []
    assert (announced, report.requests) == ([], [])
    left = [(each.area, each.status, each.says) for each in report.findings if each.area in ("endpoints", "hub")]
    assert left == [
        ("endpoints", "note", "no request sent, because of --offline"),
        ("hub", "note", "no request sent, because of --offline"),
    ]  # fmt: skip


def test_what_is_sent_is_announced_before_and_everything_is_looked_at_in_order() -> None:
    announced: list[str] = []
    with CurtServer() as server:
        subject = find_subject(None, {"model": "m", "api_base_url": server.url, "api_key_var": "MY_KEY"})

        def announce(requests: Sequence[str]) -> None:
            assert server.asked == []
            announced.extend(requests)

        report = examine(subject, CheckOptions(environ={"MY_KEY": "canary-key-0123456789"}), announce)
        assert len(server.asked) == 1
    assert announced == report.requests == [f"one message and one token to {server.host} for m"]
    areas = list(dict.fromkeys(each.area for each in report.findings))
    assert areas == [area for area in AREAS if area in areas]
    assert {"python", "packages", "machine", "disk", "sandbox", "keys", "endpoints"} <= {*areas}
    assert "canary" not in str(report.to_json())


def test_a_check_that_fails_or_hangs_is_a_problem_and_not_the_end() -> None:
    def fails() -> Sequence[Diagnosis]:
        raise ZeroDivisionError("oh")

    [failed] = asyncio.run(_guarded("disk", fails))
    assert (failed.status, failed.says) == ("problem", "the check failed: ZeroDivisionError: oh")
    end = threading.Event()
    try:
        [hung] = asyncio.run(_guarded("disk", lambda: [ok("disk", "x", str(end.wait(30)))], 0.2))
    finally:
        end.set()
    assert (hung.status, hung.says) == ("problem", "the check took more than 0.2 s")


def test_a_lookup_of_a_name_that_hangs_is_not_waited_for_at_the_end() -> None:
    end = threading.Event()

    async def main() -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_Abandoned())
        assert await loop.run_in_executor(None, lambda: 6 * 7) == 42
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await loop.run_in_executor(None, end.wait, 60.0)
        return [thread.name for thread in threading.enumerate() if not thread.daemon]

    try:
        waited_for = asyncio.run(main())
    finally:
        end.set()
    assert waited_for == ["MainThread"]  # nor by the end of the process


def test_a_report_counts_and_tells_no_secret() -> None:
    report = DoctorReport([ok("a", "b", "c"), note("a", "b", "Bearer abcdef0123456789"), problem("a", "b", "c", "do")])
    assert ok("endpoints", "sk-canary0123456789abcd at host", "").name == "[redacted] at host"  # a key as a model
    assert not report.is_well
    whole = report.to_json()
    assert (whole["ok"], whole["problems"], whole["notes"], whole["requests"]) == (False, 1, 1, [])
    assert whole["findings"][1]["says"] == "Bearer [redacted]"
    assert whole["findings"][2] == {"area": "a", "name": "b", "status": "problem", "says": "c", "fix": "do"}
    assert DoctorReport([note("a", "b", "c")]).is_well
