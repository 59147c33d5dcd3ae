"""Check the scores of reference policies: each rollout has a score, the best and worst rewards are reached, rewards are
within bounds and reproducible, the journal is complete, scoring is fast. The rollouts come from `trial`."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from harness.authoring.findings import Finding, count, fail, first_few, ok, skipped
from harness.authoring.trial import Played, PlayedRollout, Trial
from harness.rubrics.rubric import Rubric

SLACK = 1e-9
"""Tolerance for rounding errors when rewards are compared with sums of weights."""

SLOW_SECONDS = 0.05
"""Median scoring time in seconds per rollout above which the finding says how long 1,000 rollouts take."""


def scored(played: Played) -> Iterable[Finding]:
    """Check that every rollout of the reference policies has a score; yield a finding about those without."""
    missing = [
        (trial.policy, rollout)
        for trial in played.trials
        for rollout in trial.rollouts.values()
        if rollout.reward is None and (rollout.culprits or not trial.note)  # with a note, the run ended early
    ]
    if not missing:
        return
    unscored = [f"reference/{policy}, example {each.example}: {each.why}" for policy, each in missing]
    names = list(dict.fromkeys(name for _, each in missing for name in each.culprits))
    if names:
        advice = f"make {' and '.join(names)} return a number for every reply, also for an empty one"
    else:
        advice = "correct these errors: in a run, such rollouts fail and have no score"
    has = "has" if len(missing) == 1 else "have"
    yield fail(
        "scored",
        f"{len(missing):,} of {count(len(played.rollouts), 'rollout')} {has} no score: {first_few(unscored)}",
        advice,
    )


def extreme(trial: Trial, wanted: float, name: str, word: str) -> Finding:
    """Check that every scored rollout of a policy has exactly the reward `wanted`.

    Rollouts without a score are reported by `scored`.

    Args:
        trial: Rollouts of the policy that should reach the reward.
        wanted: The best or the worst reward.
        name: Name of the check.
        word: `best` or `worst`.
    """
    if trial.note:
        return fail(name, trial.note, "make the environment run; a run would end in the same way")
    rewards = [(each, each.reward) for each in trial.rollouts.values() if each.reward is not None]
    if not rewards:
        return skipped(name, "not possible: no rollout has a score")
    has_names = any(not each.example.isdigit() for each, _ in rewards)  # then it matters which ones they are
    off = [_rollout_text(each) for each, reward in rewards if abs(reward - wanted) > SLACK]
    some_lack = " that have a score" if len(rewards) < len(trial.rollouts) else ""
    if not off:
        every = "the only rollout" if len(rewards) == 1 else f"all {count(len(rewards), 'rollout')}"
        of = f": {', '.join(each.example for each, _ in rewards)}" if has_names else ""
        return ok(name, f"the {word} reward, {wanted:g}, in {every}{some_lack}{of}")
    advice = (
        "make the reward functions accept the text of reference_reply, or declare the best reward: "
        "Rubric(reward_range=(low, high))"
        if word == "best"
        else "an empty reply must have the worst reward: check the reward functions, return a worse reply from "
        "null_reply, or declare the worst reward: Rubric(reward_range=(low, high))"
    )
    return fail(name, f"not the {word} reward, {wanted:g}, in {len(off):,} of {count(len(rewards), 'rollout')}"
                f"{some_lack}: {'; '.join(off) if has_names else first_few(off)}", advice)  # fmt: skip


def _rollout_text(rollout: PlayedRollout) -> str:
    parts = ", ".join(f"{name} {_number(value)}" for name, value in rollout.metrics.items())
    return f"example {rollout.example} has {rollout.reward:g}" + (f" ({parts})" if parts else "")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def bounds(played: Sequence[Played], rubric: Rubric) -> Finding:
    """Check that every reward is within the rubric's `reward_range`."""
    low, high = rubric.reward_range
    known = [(rollout, rollout.reward) for each in played for rollout in each.rollouts if rollout.reward is not None]
    if not known:
        return skipped("bounds", "no rollout has a reward")
    outside = [_rollout_text(rollout) for rollout, reward in known if not low - SLACK <= reward <= high + SLACK]
    if outside:
        return fail("bounds", f"{count(len(outside), 'reward')} outside [{low:g}, {high:g}]: {first_few(outside)}",
                    "return values from 0 to 1, or declare the range: Rubric(reward_range=(low, high))")  # fmt: skip
    return ok("bounds", f"{count(len(known), 'reward')} in [{low:g}, {high:g}]")


def repeats(first: Played, second: Played) -> Finding:
    """Check that a second run, with the environment loaded again, has the same replies and scores."""
    total = len(second.rollouts)
    if not total:
        return skipped("repeats", "no rollout was played")
    differing = _differing(first, second)
    if differing:
        words = f"two runs differ in {len(differing):,} of {count(total, 'rollout')}: {first_few(differing)}"
        return fail("repeats", words, "seed random numbers from the example (its answer, its info), do not use the "
                    "clock, and do not carry state from one rollout to the next")  # fmt: skip
    return ok("repeats", f"two runs agree in {count(total, 'rollout')}: conversation, reward and metrics")


def _differing(first: Played, second: Played) -> list[str]:
    """Rollouts of the second pass that differ from those of the first. The second pass may have fewer rollouts."""
    differing: list[str] = []
    for one, other in zip(first.trials, second.trials, strict=True):
        for key, rollout in other.rollouts.items():
            before = one.rollouts.get(key)
            what = "was missing the first time" if before is None else _difference(before, rollout)
            if what:
                differing.append(f"reference/{one.policy}, example {rollout.example}: {what}")
    return differing


def _difference(one: PlayedRollout, other: PlayedRollout) -> str:
    if one.completion != other.completion:
        return "the conversation differs"
    if one.reward != other.reward:
        why = f" ({other.why or one.why})" if other.why or one.why else ""
        return f"reward {_number(one.reward)}, then {_number(other.reward)}{why}"
    names = [name for name in one.metrics if one.metrics[name] != other.metrics.get(name)]
    shown = [f"{name} {_number(one.metrics[name])}, then {_number(other.metrics.get(name))}" for name in names]
    return first_few(shown) if shown else ""


def state(live: Played, restored: Played | None) -> Finding:
    """Check that scores computed from the journal equal those of the run, so that a crash loses no scores.

    Args:
        live: Rollouts scored during the run.
        restored: The same rollouts, scored from their journal; None if the rubric needs live state.
    """
    rollouts = live.rollouts
    if not rollouts:
        return skipped("state", "no rollout was played")
    kept = sorted({name for rollout in rollouts for name in rollout.state})
    lost = sorted({name for rollout in rollouts for name in rollout.lost})
    columns = f"columns for -C: {', '.join(kept)}" if kept else "no columns for -C"
    gone = f"; not JSON, so lost after a crash: {', '.join(lost)}" if lost else ""
    if restored is None:
        return ok("state", f"{columns}{gone}; needs_live_state, so a crash loses rollouts that are not scored yet")
    differing = _differing(live, restored)
    if differing:
        where = f"{len(differing):,} of {count(len(rollouts), 'rollout')}"
        words = f"scores change in {where} if computed from the journal, as after a crash: {first_few(differing)}"
        advice = "store the values that rewards read in the state as JSON, or declare Rubric(needs_live_state=True)"
        return fail("state", words + gone, advice)
    return ok("state", f"the journal is enough to score again; {columns}{gone}")


def speed(played: Played, *, under_load: bool) -> Finding:
    """Report how long scoring takes.

    Args:
        played: Scored rollouts.
        under_load: Whether other rollouts were scored at the same time.
    """
    seconds = [rollout.seconds for rollout in played.rollouts if rollout.metrics]
    if not seconds:
        return skipped("speed", "no rollout was scored")
    typical, slowest = statistics.median(seconds), max(seconds)
    how = "many at once" if under_load else "one at a time"
    words = f"{_milliseconds(typical)} per rollout to score ({how}), {_milliseconds(slowest)} at most"
    if typical > SLOW_SECONDS:
        words += (
            f"; scoring 1,000 rollouts takes {typical * 1000:,.0f} s, divided among those that run concurrently (-c)"
        )
    return ok("speed", words)


def _milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.2f} ms" if value < 10 else f"{value:,.0f} ms"


def loop(played: Sequence[Played]) -> Finding:
    """Check that no code of the environment blocked the event loop, which would delay all other rollouts."""
    times = Counter[str]()
    first: dict[str, str] = {}  # a function may be seen at several of its lines
    for where, number in (item for each in played for item in each.blocked.items()):
        function = where.rpartition(":")[0]
        times[first.setdefault(function, where)] += number
    if times:
        said = [f"{where} blocked it {count(number, 'time')}" for where, number in times.items()]
        return fail("event loop", first_few(said), "it delays all other rollouts: make it a plain `def`, which runs "
                    "in a thread, or await the slow operation")  # fmt: skip
    return ok("event loop", "nothing blocked it")


def warnings(played: Sequence[Played]) -> Iterable[Finding]:
    """Report other warnings that bench logged about the environment."""
    said = list(dict.fromkeys(words for each in played for words in each.warnings))
    if said:
        yield fail("log", first_few(said), "these are warnings that a run would log")
