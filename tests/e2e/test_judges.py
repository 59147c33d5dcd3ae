"""Rubrics with a judge, as users meet them: judged without a key, by a server of their own, by one that talks nonsense,
one that is gone and one that is busy; and never by two judges in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bench_runs import Workshop, count, lines, rows, summary
from dead_ports import free_port

JUDGED = """
from harness import JudgeRubric, SingleTurnEnv
from harness.rubrics.judge import quoted_response

class Judged(SingleTurnEnv):
    def reference_reply(self, example, messages):
        return example.answer

    def reference_verdict(self, example, messages):
        said = "Same." if quoted_response(messages) == example.answer else "Other."
        return said + "\\n<verdict>" + ("CORRECT" if said == "Same." else "INCORRECT") + "</verdict>"

def load_environment(size=20, judge_model="far/judge", judge_base_url=None, judge_api_key_var=None, live=False):
    rows = [{"question": f"{n} + {n}", "answer": str(2 * n)} for n in range(size)]
    rubric = JudgeRubric(judge_model=judge_model, judge_base_url=judge_base_url, judge_api_key_var=judge_api_key_var)
    return Judged(dataset=rows, rubric=rubric)
"""

GROUP = """
import sums, judged
from harness import EnvGroup

def load_environment():
    return EnvGroup([sums.load_environment(size=3), judged.load_environment(size=3)], env_names=["sums", "judged"])
"""

ALL = ("-n", "-1", "-r", "1")


@pytest.fixture(autouse=True)
def judged(shop: Workshop) -> None:
    shop.environment("judged", JUDGED)


def args(**values: object) -> tuple[str, str]:
    return "-a", json.dumps(values)


def judge_at(url: str, model: str = "reference/judge", **more: object) -> tuple[str, str]:
    return args(judge_model=model, judge_base_url=url, **more)


def kept(run: Path) -> list[dict[str, Any]]:
    return [line["extra"]["judgements"][0] for line in lines(run) if line["type"] == "scored"]


def manifest(run: Path) -> dict[str, Any]:
    return json.loads((run / "run.json").read_text())


def test_a_judged_environment_runs_without_a_key_and_says_who_judges(shop: Workshop) -> None:
    done = shop.bench("run", "judged", *ALL, "-m", "reference/noisy", "-C", "judgements", "--json")
    assert done.code == 0, done.err
    said = "note: judged: reference/judge judges in place of far/judge, as the model is a reference model, too"
    assert done.said.count(said) == 1
    run, result = shop.run_dir(), done.run["summary"]
    assert 0.4 < result["reward"]["mean"] < 1.0
    assert result["judge_usage"]["requests"] == 20 and result["judge_usage"]["cost"] is None
    assert result["usage"]["requests"] == 20
    assert "judge: 20 replies, " in done.err and "cost unknown" in done.err
    assert manifest(run)["identity"]["judges"]["judge"]["model"] == ["reference/judge"]
    labels = {"Same.": "CORRECT", "Other.": "INCORRECT"}
    for row in rows(run):
        [judgement] = json.loads(row["judgements"])
        assert judgement["label"] == labels[judgement["text"].split("\n")[0]]
        assert row["reward"] == float(judgement["label"] == "CORRECT")


def test_scoring_afterwards_comes_to_the_same(shop: Workshop) -> None:
    for folder, more in (("a", ()), ("b", ("-N",))):
        assert shop.bench("run", "judged", *ALL, "-m", "reference/noisy", "-o", folder, *more).code == 0
    assert summary(shop.run_dir("a")) == summary(shop.run_dir("b"))
    stages = [line["type"] for line in lines(shop.run_dir("b")) if line["type"] in ("generated", "scored")]
    assert stages == ["generated"] * 20 + ["scored"] * 20


def test_a_missing_key_stops_the_run_before_the_first_call(shop: Workshop) -> None:
    named = 'endpoint_id = "far/judge"\nmodel = "far/judge"\nurl = "https://judge.invalid/v1"\nkey = "FAR_KEY"'
    shop.write("configs/endpoints.toml", f"[[endpoint]]\n{named}\n")
    with shop.serving("judged") as model:
        done = shop.bench("run", "judged", *ALL, "-m", "reference/oracle", "-b", model.url, env={"FAR_KEY": ""})
        assert model.stats()["requests"] == 0
    assert done.code == 2
    assert "error: FAR_KEY is not set, and far/judge, the judge of judged, needs it at https://" in done.said
    assert shop.run_dirs() == []


def test_a_real_model_with_the_reference_judge_when_asked_for_by_name(shop: Workshop) -> None:
    with shop.serving("judged") as model:
        named = args(judge_model="reference/judge")
        done = shop.bench("run", "judged", *ALL, *named, "-m", "reference/oracle", "-b", model.url)
        assert (done.code, model.stats()["requests"]) == (0, 20)
    assert summary(shop.run_dir())["reward"]["mean"] == 1.0
    assert "in place of" not in done.err


def test_a_judge_on_a_server_of_its_own(shop: Workshop) -> None:
    with shop.bench_serve("--env", "judged") as judge:
        done = shop.bench("run", "judged", *ALL, *judge_at(judge.url), "-m", "reference/oracle")
        assert (done.code, judge.stats()["requests"]) == (0, 20)
    run = shop.run_dir()
    assert summary(run)["reward"]["mean"] == 1.0
    assert manifest(run)["identity"]["judges"]["judge"]["urls"] == [judge.url]
    assert "note:" not in done.err


@pytest.mark.slow
def test_a_judge_that_talks_nonsense_scores_nothing_and_another_try_asks_the_judge_alone(shop: Workshop) -> None:
    port = free_port()
    command = ("run", "judged", *ALL, *judge_at(f"http://127.0.0.1:{port}/v1", "grader"))
    with shop.serving("judged") as model:
        asked = (*command, "-m", "reference/oracle", "-b", model.url)
        with shop.bench_serve("--port", str(port)):  # plain text for every name
            first = shop.bench(*asked, "--json")
        assert first.code == 1
        assert first.run["summary"]["unscored"] == {"judge_verdict no verdict": 20}
        assert first.run["summary"]["judge_usage"]["requests"] == 20
        assert "20 unscored (judge_verdict no verdict 20)" in first.err
        run = shop.run_dir()
        assert {row["reward"] for row in rows(run)} == {None}
        assert all("the judge's last line is" in row["error"] for row in rows(run))
        with shop.bench_serve("--port", str(port), "--env", "judged", "--policy", "judge"):
            second = shop.bench(*asked, "--resume", "--retry-failed", "--json")
        assert second.code == 0, second.err
        assert model.stats()["requests"] == 20
    assert shop.run_dir() == run
    assert (second.run["summary"]["reward"]["mean"], second.run["summary"]["unscored"]) == (1.0, {})
    assert (count(run, "generated"), count(run, "scored")) == (20, 40)
    assert {judgement.get("label") for judgement in kept(run)} == {None, "CORRECT"}


@pytest.mark.slow
@pytest.mark.parametrize("later", [(), ("-N",)])
def test_a_judge_that_is_gone_stops_the_run_and_a_resume_scores_what_was_generated(
    shop: Workshop, later: tuple[str, ...]
) -> None:
    port = free_port()
    command = ("run", "judged", *ALL, *judge_at(f"http://127.0.0.1:{port}/v1"), *later)
    with shop.serving("judged") as model:
        asked = (*command, "-m", "reference/oracle", "-b", model.url, "-c", "4")
        first = shop.bench(*asked)
        made = count(shop.run_dir(), "generated")
        assert first.code == 1
        message = "the judge reference/judge cannot be used: 127.0.0.1:"
        assert first.said.count(message) == 1  # in the log; the table is on stdout
        assert "stopped: the judge reference/judge" in " ".join(first.out.split())
        assert count(shop.run_dir(), "scored") == 0
        assert made == 20 if later else 4 <= made < 20, "it stopped early, and kept what was in flight"
        with shop.bench_serve("--port", str(port), "--env", "judged"):
            second = shop.bench(*asked, "--resume")
        assert second.code == 0, second.err
        assert model.stats()["requests"] == 20
        assert set(model.stats()["rollouts"].values()) == {1}, "nothing was generated twice"
    run = shop.run_dir()
    assert (count(run, "generated"), count(run, "scored")) == (20, 20)
    assert summary(run)["reward"]["mean"] == 1.0
    assert summary(run)["judge_usage"]["requests"] == 20


def test_a_refused_key_stops_the_run_too(shop: Workshop) -> None:
    with shop.bench_serve("--env", "judged", "--fail-rate", "1", "--fail-status", "401") as judge:
        done = shop.bench("run", "judged", *ALL, *judge_at(judge.url), "-m", "reference/oracle")
        assert judge.stats()["requests"] <= 20
    assert done.code == 1
    assert "stopped: the judge reference/judge cannot be used:" in " ".join(done.out.split())
    assert "HTTP 401" in done.err
    assert count(shop.run_dir(), "scored") == 0


def test_a_busy_judge_is_waited_for(shop: Workshop) -> None:
    busy = ("--fail-rate", "0.3", "--fail-status", "429", "--retry-after", "0.02", "--seed", "3")
    with shop.bench_serve("--env", "judged", *busy) as judge:
        done = shop.bench("run", "judged", *ALL, *judge_at(judge.url), "-m", "reference/oracle")
        assert done.code == 0, done.err
        assert judge.stats()["requests"] > 20
    run = summary(shop.run_dir())
    assert (run["scored"], run["unscored"], run["judge_usage"]["requests"]) == (20, {}, 20)


@pytest.mark.slow
def test_another_judge_is_refused_by_name(shop: Workshop) -> None:
    """Whether an argument of the environment says so, or the registry behind an alias."""
    registry = '[[endpoint]]\nendpoint_id = "grader"\nmodel = "reference/judge"\nurl = "{}"\n'
    with shop.bench_serve("--env", "judged") as judge:
        shop.write("configs/endpoints.toml", registry.format(judge.url))
        command = ("run", "judged", *ALL, "-m", "reference/oracle")
        assert shop.bench(*command, *args(judge_model="grader", size=4)).code == 0
        other = shop.bench(*command, *args(judge_model="reference/judge", size=4), "--resume")
        assert other.code == 2
        assert 'env.env_args.judge_model was "grader", now "reference/judge"' in other.said
        shop.write("configs/endpoints.toml", registry.format(judge.url).replace("reference/judge", "other-judge"))
        changed = shop.bench(*command, *args(judge_model="grader", size=4), "--resume")
        assert changed.code == 2
        assert 'judges.judge.model was ["reference/judge"], now ["other-judge"]' in changed.said
        assert judge.stats()["requests"] == 4
    assert len(shop.run_dirs()) == 1


@pytest.mark.slow
def test_a_runs_own_configuration_knows_the_judges_endpoint(shop: Workshop) -> None:
    """Also after the registry that it came from is gone."""
    with shop.bench_serve("--env", "judged") as judge:
        text = f'[[endpoint]]\nendpoint_id = "grader"\nmodel = "reference/judge"\nurl = "{judge.url}"\n'
        registry = shop.write("mine.toml", text)
        command = ("run", "judged", *ALL, "-m", "reference/oracle", "-e", "mine.toml")
        assert shop.bench(*command, *args(judge_model="grader", size=4)).code == 0
        registry.unlink()
        run = shop.run_dir()
        again = shop.bench("run", str(run / "config.toml"), "--resume-from", str(run), "--json")
        assert again.code == 0, again.err
        assert (again.run["summary"]["scored"], judge.stats()["requests"]) == (4, 4)


def test_a_judge_inside_a_group_of_environments(shop: Workshop) -> None:
    shop.environment("both", GROUP)
    done = shop.bench("run", "both", *ALL, "-m", "reference/oracle", "--json")
    assert done.code == 0, done.err
    result = done.run["summary"]
    assert (result["scored"], result["reward"]["mean"]) == (6, 1.0)
    assert result["judge_usage"]["requests"] == 3
    assert [row["task"] for row in rows(shop.run_dir())] == ["sums"] * 3 + ["judged"] * 3


def test_the_judge_plays_nothing(shop: Workshop) -> None:
    done = shop.bench("run", "judged", "-m", "reference/judge")
    assert done.code == 2
    assert "reference/judge can only be a judge" in done.said


def test_a_key_in_place_of_its_variables_name_is_written_nowhere(shop: Workshop) -> None:
    key = "sk-live-0123456789abcdef"
    done = shop.bench("run", "judged", *ALL, *args(judge_api_key_var=key), "-m", "reference/oracle")
    assert done.code == 2
    assert "judge_api_key_var must be the name of an environment variable, never the key itself" in done.said
    assert key not in done.said and key not in done.err and shop.run_dirs() == []
    written = [path for path in shop.cwd.rglob("*") if path.is_file()]
    assert [path for path in written if key.encode() in path.read_bytes()] == []


def test_a_verdict_that_is_never_returned_is_said_and_not_asked_for_again(shop: Workshop) -> None:
    wrong = JUDGED.replace("        return said +", "        said +")
    assert wrong != JUDGED
    shop.environment("forgetful", wrong)
    with shop.bench_serve("--env", "forgetful") as judge:
        done = shop.bench("run", "forgetful", *ALL, *judge_at(judge.url), "-m", "reference/oracle")
        assert judge.stats()["requests"] == 20
    reason = "reference_verdict returned NoneType, not a string or a message (missing return statement?)"
    assert "Traceback" not in done.err
    [(said, number)] = summary(shop.run_dir())["unscored"].items()
    assert (said, number) == ("judge_verdict judge bad_request", 20)
    scores = [line for line in lines(shop.run_dir()) if line["type"] == "scored"]
    assert len(scores) == 20 and all(reason in json.dumps(line) for line in scores)
