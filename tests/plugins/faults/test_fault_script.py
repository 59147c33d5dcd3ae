"""Which request meets which fault, as files and command lines say it; and what is wrong with them, in words."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from fault_server import FaultServer
from tables import for_each_row

from harness.core.errors import ConfigError
from harness.plugins.faults.catalogue import COMMON, KINDS, STATUS_PARAMETERS, make_faults
from harness.plugins.faults.options import SELECTORS, fault_script, read_shorthand
from harness.plugins.faults.rules import FaultRule, FaultScript
from harness.plugins.faults.spoil import GARBLINGS
from harness.reference.fault_sources import ObservedRequest
from harness.reference.header import RolloutHeader

BENCH = [sys.executable, "-c", "from harness.cli.main import main; raise SystemExit(main())", "serve"]

FILE = """
seed = 7
latency_ms = 20
sigma = 0.5

[[fault]]
fault = "429"
every = 3
retry_after = 1

[[fault]]
fault = 503
at = [1, 2]
headers = { x-served-by = "rack 7" }
message = "no backend"

[[fault]]
fault = "bad-tool-call"
share = 0.25
times = 4
per = "rollout"
model = "judge-*"
form = "quote"
"""


def asks(count: int, script: FaultScript, **more: str) -> list[str]:
    """The names of the faults of so many requests."""
    return [script.next(asked(number, **more)).name for number in range(1, count + 1)]


def asked(
    number: int = 1, *, model: str = "m", prompt: str = "hi", rollout: str = "", path: str = "chat"
) -> ObservedRequest:
    raw = json.dumps({"model": model, "messages": [{"role": "user", "content": prompt}]}).encode()
    who = RolloutHeader("lane", f"example of {rollout}", rollout) if rollout else None
    return ObservedRequest(
        number, {"chat": "/v1/chat/completions", "text": "/v1/completions"}.get(path, path), raw, who
    )


def hits(*faults: str, count: int = 12, **more: str) -> list[int]:
    """Numbers of the requests that meet a fault."""
    return [number for number, name in enumerate(asks(count, fault_script(*faults), **more), 1) if name]


@for_each_row(
    ("spec", "numbers"),
    [
        ("reset", list(range(1, 13))),
        ("reset@at=3", [3]),
        ("reset@at=1-2+7+11-", [1, 2, 7, 11, 12]),
        ("reset@every=5", [5, 10]),
        ("reset@every=2,at=5-8", [6, 8]),
        ("reset@times=2", [1, 2]),
        ("reset@every=3,times=2", [3, 6]),
        ("reset@share=0", []),
        ("reset@share=1,times=3", [1, 2, 3]),
    ],
)
def test_by_number(spec: str, numbers: list[int]) -> None:
    assert hits(spec) == numbers


def test_the_first_that_fits_decides_and_all_count() -> None:
    script = fault_script("429@every=2", "reset@every=3", "500@at=6-7")
    assert asks(7, script) == ["", "429", "reset", "429", "", "429", "500"]
    assert [(tally.requests, tally.hits) for tally in script.tallies] == [(7, 3), (7, 1), (7, 1)]


@for_each_row(
    ("spec", "more", "meets"),
    [
        ("reset@model=judge-*", {"model": "judge-1"}, True),
        ("reset@model=judge-*", {"model": "a judge-1"}, False),
        ("reset@prompt=apples", {"prompt": "How many apples are left?"}, True),
        ("reset@prompt=apples", {"prompt": "How many pears are left?"}, False),
        ("reset@path=/v1/completions", {"path": "text"}, True),
        ("reset@path=/v1/completions", {}, False),
        ("reset", {"path": "text"}, True),
        ("reset", {"path": "/v1/models"}, False),
        ("reset@path=/v1/*", {"path": "/v1/models"}, True),
        ("reset@rollout=ab*", {"rollout": "abc"}, True),
        ("reset@rollout=ab*", {"rollout": "bcd"}, False),
        ("reset@rollout=*", {}, False),
        ("reset@example=*of abc", {"rollout": "abc"}, True),
        ("reset@model=m,prompt=hi", {}, True),
        ("reset@model=m,prompt=ho", {}, False),
    ],
)
def test_by_who_asks(spec: str, more: dict[str, str], meets: bool) -> None:
    assert hits(spec, count=1, **more) == ([1] if meets else [])


def test_each_rollout_has_its_own_numbers() -> None:
    script = fault_script("reset@at=1,per=rollout", "429@at=2,per=model,model=b")
    names = [script.next(asked(rollout=key, model=model)).name for key, model in ("xm", "ym", "xb", "yb", "zm", "yb")]
    assert names == ["reset", "reset", "", "429", "reset", ""]
    assert script.next(asked()).name == "", "what names no rollout is none of its business"


def test_shares_are_shares_of_all_requests_and_repeat() -> None:
    specs = ("500@share=0.1", "reset@share=0.2", "hang@share=0.3")
    names = asks(10_000, fault_script(*specs, seed=3))
    assert names == asks(10_000, fault_script(*specs, seed=3))
    assert names != asks(10_000, fault_script(*specs, seed=4))
    counts = Counter(names)
    for name, share in {"500": 0.1, "reset": 0.2, "hang": 0.3, "": 0.4}.items():
        assert abs(counts[name] / 10_000 - share) < 0.02


def test_draws_of_a_rollout_do_not_depend_on_the_others() -> None:
    def fates(order: Sequence[str]) -> dict[str, list[str]]:
        script = fault_script("429|500|503@share=0.5,per=rollout", seed=5)
        met: dict[str, list[str]] = {}
        for key in order:
            met.setdefault(key, []).append(script.next(asked(rollout=key)).name)
        return met

    keys = [f"r{number}" for number in range(300)]
    once = fates([key for key in keys for _ in range(3)])
    assert once == fates([key for _ in range(3) for key in reversed(keys)])
    counts = Counter(name for names in once.values() for name in names)
    assert abs(counts[""] / 900 - 0.5) < 0.06
    assert all(counts[status] > 100 for status in ("429", "500", "503"))


def test_a_file_says_the_same_as_a_command_line(tmp_path: Path) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(FILE)
    script = fault_script(file=path)
    assert (script.seed, script.latency, script.sigma) == (7, 0.02, 0.5)
    words = (
        "429@every=3,retry_after=1",
        "503@at=1+2,header.x-served-by=rack 7,message=no backend",
        "bad-tool-call@share=0.25,times=4,per=rollout,model=judge-*,form=quote",
    )
    read = [tally.rule for tally in script.tallies]
    assert [unlabelled(rule) for rule in read] == [unlabelled(read_shorthand(text)) for text in words]
    assert [rule.label for rule in read] == [
        "429@every=3,retry_after=1",
        "503@at=[1, 2],message=no backend",
        "bad-tool-call@share=0.25,times=4,per=rollout,model=judge-*,form=quote",
    ]
    both = fault_script("reset@at=1", file=path, seed=9, latency=0.0)
    assert (both.seed, both.latency, both.sigma) == (9, 0.0, 0.5)
    assert [tally.rule.label.partition("@")[0] for tally in both.tallies] == ["reset", "429", "503", "bad-tool-call"]


def unlabelled(rule: FaultRule) -> tuple[object, ...]:
    return (rule.faults, rule.at, rule.every, rule.share, rule.times, rule.per, rule.filters)


def test_a_date_with_a_comma_is_one_value() -> None:
    [fault] = read_shorthand("429@retry_after=Wed, 21 Oct 2015 07:28:00 GMT,every=2").faults
    assert fault.headers == (("Retry-After", "Wed, 21 Oct 2015 07:28:00 GMT"),)


@for_each_row(
    ("spec", "words"),
    [
        (
            "rest",
            "--fault 'rest': unknown fault 'rest'; use an HTTP status or a name (did you mean \"reset\"?)",
        ),
        ("", "fault is missing"),
        ("200", "200 is not an HTTP error; use 400 to 599"),
        ("reset@", "invalid setting ''; write settings as in 429@every=3,retry_after=1"),
        ("reset@3", "invalid setting '3'"),
        ("reset@evry=3", "unknown key 'evry'; did you mean \"every\"?"),
        ("reset@retry_after=3", "fault reset has no parameter 'retry_after'; valid here: delay"),
        ("429@retryafter=3", "fault 429 has no parameter 'retryafter'; did you mean \"retry_after\"?"),
        ("reset@at=0", "at must be request numbers from 1"),
        ("reset@at=5-3", "at must be request numbers from 1"),
        ("reset@at=", "at must be request numbers from 1"),
        ("reset@every=0", "every must be a whole number of at least 1, not 0"),
        ("reset@times=some", "times must be a whole number of at least 1, not 'some'"),
        ("reset@share=1.5", "share must be a number from 0 to 1, not '1.5'"),
        ("reset@share=nan", "share must be a number from 0 to 1, not 'nan'"),
        ("reset@per=day", "per must be one of rollout, example, model, not 'day'"),
        ("reset@model=", "model must be a non-empty string"),
        ("reset@at=1,at=2", "sets at twice"),
        ("trickle@seconds=-1", "seconds must be a number of at least 0, not '-1'"),
        ("reset-body@sent=2", "sent must be a number from 0 to 1, not '2'"),
        ("bad-tool-call@form=cutt", "unknown form 'cutt' of a garbled tool call; did you mean \"cut\"?"),
        ("huge@gzip=maybe", "gzip must be true or false, not 'maybe'"),
        ("huge@status=99", "status must be a number from 200 to 599, not '99'"),
        ("reset@header.x=1", "fault reset cannot have headers; only HTTP errors and faults with a body can"),
        ("429@header.x y=1", "invalid setting|is not a valid HTTP header"),
        ("429@retry_after=1\r\nx: y", "is not a valid HTTP header"),
    ],
)
def test_what_is_wrong_is_said(spec: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fault_script(spec)
    assert any(each in str(caught.value) for each in words.split("|"))
    assert str(caught.value).startswith(f"--fault {spec!r}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[fault]\n", "is not valid TOML"),
        ("sed = 1\n", "unknown key 'sed'; did you mean \"seed\"?"),
        ("seed = -1\n", "seed must be a whole number of at least 0, not -1"),
        ("latency_ms = true\n", "latency_ms must be a number from 0"),
        ("[fault]\nfault = '429'\n", "write faults as [[fault]] tables"),
        ("[[fault]]\nevery = 2\n", "[[fault]] 1: fault is missing"),
        ("[[fault]]\nfault = 'reset'\n[[fault]]\nfault = 'reset'\nat = []\n", "[[fault]] 2: at is empty"),
        ("[[fault]]\nfault = '429'\nheaders = 'x'\n", "[[fault]] 1: headers must be a table of names and values"),
        ("[[fault]]\nfault = 'reset'\nevery = 2.5\n", "every must be a whole number of at least 1, not 2.5"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "faults.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        fault_script(file=path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.toml: No such file"):
        fault_script(file=tmp_path / "none.toml")


def test_shares_of_everybody_cannot_be_more_than_all() -> None:
    with pytest.raises(ConfigError, match=r"sum to 1\.2 \(0\.6 \+ 0\.6\)"):
        fault_script("reset@share=0.6", "hang@share=0.6")
    fault_script("reset@share=0.6,model=a", "hang@share=0.6,model=b")


def test_what_was_served_is_told() -> None:
    def post(url: str, model: str) -> int:
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}]}).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{url}/chat/completions", body), timeout=60) as reply:
                return reply.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    with FaultServer("429@every=2", "503@model=b", "500@path=/v1/models") as server:
        assert [post(server.url, model) for model in "aabb"] == [200, 429, 503, 429]
        with pytest.raises(urllib.error.HTTPError, match="500") as caught:
            urllib.request.urlopen(f"{server.url}/models", timeout=60)
        caught.value.close()
        with urllib.request.urlopen(f"{server.url.removesuffix('/v1')}/faults", timeout=60) as reply:
            told = json.load(reply)
        assert server.met == ["", "429", "503", "429", "500"]
    assert (told["requests"], told["faults"]) == (4, 4)
    assert [(rule["fault"], rule["requests"], rule["hits"]) for rule in told["rules"]] == [
        ("429@every=2", 4, 2),
        ("503@model=b", 2, 1),
        ("500@path=/v1/models", 1, 1),
    ]
    path = "/v1/chat/completions"
    assert told["served"][2] == {
        "number": 3, "path": path, "model": "b", "example": "", "rollout": "", "fault": "503"
    }  # fmt: skip


def test_the_reference_names_all() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    assert [name for name in (*KINDS, *GARBLINGS) if f"`{name}`" not in page] == []
    parameters = {
        each for kind in KINDS.values() for each in (*kind.parameters, *STATUS_PARAMETERS, *COMMON, *SELECTORS)
    }
    assert [name for name in parameters if f"`{name}" not in page] == []


def test_the_list_of_faults_names_all_and_all_can_be_made() -> None:
    done = subprocess.run([*BENCH, "--list-faults"], capture_output=True, text=True, timeout=60, check=True)
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert listed[1:] == [*KINDS]
    for name in KINDS:
        assert all(fault.name == name for fault in make_faults(name, {"delay": 1}, {}))
