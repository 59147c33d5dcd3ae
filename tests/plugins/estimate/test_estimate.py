"""`bench estimate`: the mean of a random sample, with finished runs of other models as controls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compared_runs import Scores, scored_run
from run_samples import Bench

from harness.store.rundir import RunDir

OUT = Path("outputs")
EXAMPLES = 120
GENERATOR = np.random.default_rng(8)
HARD = GENERATOR.random(EXAMPLES)
SAMPLE = GENERATOR.permutation(EXAMPLES)[:40]


def scores(level: float, keys: Any = range(EXAMPLES)) -> Scores:
    return {int(n): [float(HARD[n] < level)] for n in keys}


def identity(shuffle: bool, **env_args: Any) -> dict[str, Any]:
    env = {"env_id": "sums", "env_args": env_args, "extra_env_kwargs": {}}
    return {"env": env, "order": {"shuffle": shuffle, "shuffle_seed": 0 if shuffle else None}}


def run(values: Scores, minute: int, model: str, *, shuffle: bool = False, **changes: Any) -> RunDir:
    more = {"status": "done", "identity": identity(shuffle), **changes}
    return scored_run(OUT, values, minute, model=f"lab/{model}", **more)


@pytest.fixture
def sample(here: Path) -> RunDir:
    """A run of 40 examples of 120; two earlier runs have all of them."""
    run(scores(0.3), 0, "weak")
    run(scores(0.7), 1, "strong")
    return run(scores(0.5, SAMPLE), 2, "new", shuffle=True)


def document(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench("estimate", *arguments, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_the_corrected_mean_is_beside_the_plain_one(
    bench: Bench, sample: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = bench("estimate", sample.id)
    assert done.code == 0, done.err
    assert (
        done.out
        == """\
sums · lab/new · reward · 40 of 120 examples
estimate          mean  95 % of all 120  95 % of new examples  as good as
─────────────────────────────────────────────────────────────────────────
plain            0.600   [0.470, 0.730]        [0.446, 0.746]          40
with 2 controls  0.579   [0.493, 0.665]        [0.454, 0.704]          64

As good as 64 examples without controls: the controls say how hard the 40
sampled examples are beside all 120. They predict 56 % of the variance.
The first interval is for the mean that a run of all 120 examples would have,
the second for new examples of the same kind. Choose one of the two rows before
you see them.
Method: regression on the controls, cross-fitted; the first interval has √(1 −
n/N). Student t on per-example means, n-1 degrees of freedom (Miller 2024, arXiv
2411.00640); Wilson score interval for a proportion (Wilson 1927); an end with
fewer than 20 passes or failures on its side is at least as far out as the exact
one-sided 97 % limit (after Brown, Cai & DasGupta 2001).
"""
    )


def test_as_json(bench: Bench, sample: RunDir) -> None:
    found = document(bench, sample.id)
    assert [each["model"] for each in found["controls"]] == ["lab/weak", "lab/strong"]
    assert (found["examples"], found["population"], found["is_random_assumed"]) == (40, EXAMPLES, False)
    plain, corrected = found["plain"], found["corrected"]
    assert plain["population"]["mean"] == pytest.approx(np.mean(HARD[SAMPLE] < 0.5))
    truth = float(np.mean(HARD < 0.5))
    low, high = corrected["population"]["ci95"]
    assert low <= truth <= high
    assert high - low < plain["population"]["ci95"][1] - plain["population"]["ci95"][0]
    own = bench("compare", sample.id, found["controls"][0]["run"], "--json")
    assert plain["new_examples"]["ci95"] == json.loads(own.out)["runs"][0]["score"]["ci95"]  # as in its own table
    assert found["as_good_as"] > 40 and 0 < found["explained"] < 1


def test_controls_are_found_or_named(bench: Bench, sample: RunDir) -> None:
    run(scores(0.6), 5, "stopped", status="interrupted")
    run(scores(0.6), 6, "elsewhere", identity=identity(False, split="train"))
    run(scores(0.6, SAMPLE), 7, "as-small", shuffle=True)
    newer = run(scores(0.4), 8, "weak")
    found = document(bench, sample.id)
    assert [each["model"] for each in found["controls"]] == ["lab/strong", "lab/weak"]
    assert found["controls"][1]["run"] == newer.id and found["not_used"] == []
    named = document(bench, sample.id, newer.id, newer.id)
    assert [each["run"] for each in named["controls"]] == [newer.id]


def test_named_runs_that_cannot_be_controls_are_named_with_the_reason(bench: Bench, sample: RunDir) -> None:
    good = run(scores(0.6), 4, "good")
    others = [
        run(scores(0.6), 5, "elsewhere", identity=identity(False, split="train")),
        run(scores(0.6, SAMPLE), 6, "as-small", shuffle=True),
        run(scores(0.6, [n for n in range(EXAMPLES) if n not in SAMPLE[:3]]), 7, "lacking"),
        run({n: [None] if n % 10 == 0 else values for n, values in scores(0.6).items()}, 8, "holes"),
    ]
    found = document(bench, sample.id, good.id, sample.id, *(each.id for each in others))
    assert [each["run"] for each in found["controls"]] == [good.id]
    assert found["not_used"] == [
        f"{sample.id} is the run itself.",
        f"lab/elsewhere ({others[0].id}) is of another environment, or has other arguments.",
        f"lab/as-small ({others[1].id}) has no more examples than the run.",
        f"lab/lacking ({others[2].id}) lacks 3 of the run's examples.",
        f"lab/holes ({others[3].id}) has a score on 108 of the 120 examples, and controls need 98 %.",
    ]
    done = bench("estimate", sample.id, others[0].id)
    assert done.code == 2 and "no run can be a control of" in done.err and "is of another environment" in done.err


def test_a_few_missing_scores_of_a_control_are_its_mean(bench: Bench, sample: RunDir) -> None:
    holes = run({n: [None] if n in (3, 50) else values for n, values in scores(0.6).items()}, 8, "holes")
    assert [each["run"] for each in document(bench, sample.id, holes.id)["controls"]] == [holes.id]


def test_missing_scores_of_the_run_are_said(bench: Bench, sample: RunDir) -> None:
    short = {n: [None] if place < 4 else values for place, (n, values) in enumerate(scores(0.5, SAMPLE).items())}
    done = bench("estimate", run(short, 9, "short", shuffle=True).id)
    assert done.code == 0 and "36 of 120 examples" in done.out
    assert "The run: without a score:" in done.out
    assert "The mean is of the examples that have a score; the missing ones may be harder or easier." in done.out


def test_a_sample_must_be_random(bench: Bench, sample: RunDir) -> None:
    first = run(scores(0.5, range(40)), 5, "first")
    done = bench("estimate", first.id)
    assert done.code == 2 and "not recorded as a random sample" in done.err and "--shuffle" in done.err
    assert document(bench, first.id, "--assume-random")["is_random_assumed"] is True
    assert "is your assumption (--assume-random)" in bench("estimate", first.id, "--assume-random").out


def test_other_runs_that_cannot_be_estimated(bench: Bench, sample: RunDir) -> None:
    few = run(scores(0.5, SAMPLE[:19]), 5, "few", shuffle=True)
    done = bench("estimate", few.id)
    assert done.code == 2 and "19 examples with a score; controls need 20 or more" in done.err
    alone = run(scores(0.5, SAMPLE), 6, "alone", shuffle=True, identity=identity(True, split="other"))
    done = bench("estimate", alone.id)
    assert (
        done.code == 2 and f"no run can be a control of {alone.path}: there is no other finished run with" in done.err
    )
    done = bench("estimate", sample.id, "--metric", "nothing")
    assert done.code == 2 and "has no metric 'nothing'" in done.err
    assert bench("estimate", "nothing").code == 2


def test_equal_scores_have_nothing_to_predict(bench: Bench, sample: RunDir) -> None:
    perfect = run(scores(1.0, SAMPLE), 5, "perfect", shuffle=True)
    done = bench("estimate", perfect.id)
    assert done.code == 0 and "Every example has the same score" in done.out
    assert document(bench, perfect.id)["as_good_as"] is None


def test_clusters_leave_no_interval_for_new_examples(bench: Bench, sample: RunDir) -> None:
    infos = {int(n): {"document": int(n) // 4} for n in SAMPLE}
    made = run(scores(0.5, SAMPLE), 6, "other", shuffle=True, infos=infos, cluster_key="document")
    run(scores(0.3), 7, "weak", infos={n: {"document": n // 4} for n in range(EXAMPLES)})
    known = document(bench, made.id)
    assert known["corrected"]["population"]["ci95"] and known["corrected"]["new_examples"]["ci95"] is None
    assert known["plain"]["new_examples"]["ci95"]
    assert "Examples with the same document are one cluster." in bench("estimate", made.id).out


def test_hostile_names_are_cleaned(bench: Bench, sample: RunDir) -> None:
    run(scores(0.6), 5, "\x1b[31mred")
    assert "\x1b" not in bench("estimate", sample.id).out
