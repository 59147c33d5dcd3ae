"""TextArena's, reasoning-gym's and gymnasium's games as classic environments, with the real packages."""

from __future__ import annotations

import asyncio
import importlib
import json
import random
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
from scripted_chat import ScriptedChat

from harness.core.errors import EnvironmentFault
from harness.core.records import Example, Generated, Score
from harness.core.state import State
from harness.envs.environment import Environment
from harness.plugins.classic.context import current
from harness.plugins.classic.generation import Generation
from harness.plugins.classic.gym_env import EpisodicSumRubric, GymEnv, normalize_reset, normalize_step
from harness.plugins.classic.reasoning_gym_env import ReasoningGymEnv
from harness.plugins.classic.rubric import Rubric
from harness.plugins.classic.text_arena_env import TextArenaEnv


@pytest.fixture(params=["B", "C"])
def generation(request: pytest.FixtureRequest) -> Generator[Generation]:
    token = current.set(request.param)
    yield request.param
    current.reset(token)


def example(env: Environment, index: int = 0) -> Example:
    row = env.row(index)
    return Example(f"key{index}", row.example_id, row.prompt, row.answer, row.task, row.info)


def play(env: Environment, replies: list[object], index: int = 0) -> tuple[State, ScriptedChat]:
    """One rollout, and what the model was asked."""
    chat = ScriptedChat(replies)
    state = State.begin(example(env, index), 0, chat.model, {})
    asyncio.run(env.rollout(state, chat))
    return state, chat


def score(env: Environment, state: State) -> Score:
    [result] = asyncio.run(env.rubric.score([state]))
    return result


def after_a_crash(env: Environment, state: State, index: int = 0) -> State:
    """The state as the journal brings it back."""
    kept, lost = state.export()
    kept = json.loads(json.dumps(kept))
    line = Generated("k", f"key{index}", 0, state["completion"], state["stop_condition"], state=kept, lost=lost)
    return State.restore(example(env, index), line, "scripted", {})


# gymnasium


class Counter:
    """Counts up to three from where its seed says; says how often it was made and closed."""

    open = 0
    resets: list[int] = []  # noqa: RUF012

    def __init__(self, goal: int = 3) -> None:
        Counter.open += 1
        self.goal = goal
        self.value = 0

    def reset(self, seed: int | None = None) -> tuple[int, dict[str, Any]]:
        assert seed is not None
        Counter.resets.append(seed)
        self.value = seed % 2
        return self.value, {}

    def step(self, action: int) -> tuple[int, float, bool, dict[str, Any]]:
        self.value += action
        return self.value, float(action) / 2, self.value >= self.goal, {"at": self.value}

    def close(self) -> None:
        Counter.open -= 1


def counter(**options: Any) -> GymEnv:
    Counter.open, Counter.resets = 0, []
    return GymEnv(Counter, action_parser=int, num_train_episodes=4, num_eval_episodes=2, **options)


def test_an_episode_is_its_row_s_seed_played_by_the_model(generation: Generation) -> None:
    env = counter(seed=10, obs_to_text=lambda value: f"at {value}")
    assert [env.row(i).answer for i in range(env.row_count)] == ["14", "15"]
    assert Counter.resets == [14, 15], "only what is evaluated is reset"
    state, chat = play(env, ["1", "1", "2"], index=1)
    contents = [message["content"] for message in state["completion"]]
    assert contents == ["1", "at 2", "1", "at 3\nEpisode already ended."], "nobody is asked when it is over"
    assert state["stop_condition"] == "is_done"
    assert len(chat.asked) == 2
    assert score(env, state).reward == 1.0
    assert [step["reward"] for step in state["trajectory"]] == [0.5, 0.5]
    assert state["trajectory"][0]["extras"]["gym_info"] == {"at": 2}
    assert Counter.open == 0, "what was made was closed"
    assert score(env, after_a_crash(env, state, index=1)).reward == 1.0


def test_an_action_that_cannot_be_read_ends_the_episode_at_nothing(generation: Generation) -> None:
    env = counter()
    state, chat = play(env, ["1", "left"])
    assert len(chat.asked) == 2
    assert state["stop_condition"] == "is_done"
    assert score(env, state).reward == 0.5
    assert state["gym_rewards"] == [0.5, 0.0]


def test_rewards_of_single_steps_come_out_of_the_journal(generation: Generation) -> None:
    def first_step(state: State) -> float:
        return float(state["trajectory"][0]["reward"])

    env = counter(rubric=Rubric([first_step]))
    state, _ = play(env, ["2", "2"])
    assert score(env, state).reward == 1.0
    env.settle()
    assert score(env, after_a_crash(env, state)).reward == 1.0


def test_an_episode_has_a_longest_length(generation: Generation) -> None:
    env = counter(max_episode_steps=2, env_kwargs={"goal": 100})
    state, chat = play(env, ["0"])
    assert (len(chat.asked), state["stop_condition"]) == (2, "max_turns_reached")


def test_without_evaluation_episodes_the_others_are_evaluated() -> None:
    env = GymEnv(Counter, num_train_episodes=3, num_eval_episodes=0)
    assert env.row_count == 3


def test_an_environment_that_starts_another_way_each_time_is_a_fault() -> None:
    class Dice(Counter):
        throws = iter(range(100))

        def reset(self, seed: int | None = None) -> Any:
            return f"throw {next(self.throws)}"

    env = GymEnv(Dice, num_train_episodes=1, num_eval_episodes=0, action_parser=int, env_kwargs={"goal": 99})
    with pytest.raises(
        EnvironmentFault, match=r"reset\(seed=0\) returned 'throw 1', but the prompt of this row is 'throw 0'"
    ):
        play(env, ["1", "1"])


def test_both_shapes_of_reset_and_step_are_read() -> None:
    assert normalize_reset("obs") == ("obs", {})
    assert normalize_reset(("obs", {"a": 1})) == ("obs", {"a": 1})
    assert normalize_step((1, 2, True, {})) == (1, 2.0, True, False, {})
    assert normalize_step((1, 2, False, True, {})) == (1, 2.0, False, True, {})
    with pytest.raises(EnvironmentFault, match="4 or 5 values"):
        normalize_step((1, 2))


def test_the_sum_may_weigh() -> None:
    assert EpisodicSumRubric(weight=2.0).weights == [2.0]


def test_a_real_gymnasium_environment_is_played() -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="pip install 'bench-harness[gym]'")

    def frozen(**options: Any) -> Any:
        return gymnasium.make("FrozenLake-v1", is_slippery=False, **options)

    env = GymEnv(
        frozen, env_kwargs={"map_name": "4x4"}, action_parser=int, obs_to_text=lambda obs: f"field {obs}",
        num_train_episodes=1, num_eval_episodes=1, system_prompt="Cross the lake.",
    )  # fmt: skip
    state, _ = play(env, ["1", "1", "2", "1", "2", "2"])
    assert state["completion"][-1]["content"] == "field 15\nEpisode already ended."
    assert score(env, state).reward == 1.0
    assert state["prompt"][0]["content"] == "Cross the lake."


# reasoning-gym

RG = "reasoning-gym is not installed: pip install 'bench-harness[reasoning-gym]'"


def test_tasks_are_scored_by_the_library(generation: Generation) -> None:
    rg = pytest.importorskip("reasoning_gym", reason=RG)
    env = ReasoningGymEnv("chain_sum", num_train_examples=3, num_eval_examples=2, seed=7)
    entries = rg.create_dataset("chain_sum", size=5, seed=7)
    assert (env.row_count, env.row(0).answer, env.row(1).answer) == (2, "3", "4")
    state, chat = play(env, [f"<answer>{entries[3]['answer']}</answer>"])
    asked = chat.asked[0].prompt
    assert isinstance(asked, list)
    assert asked[0] == {"role": "system", "content": rg.utils.SYSTEM_PROMPTS["default"]}
    assert asked[1]["content"] == entries[3]["question"]
    right = score(env, state)
    assert (right.reward, right.metrics["check_answer_reward_func"]) == (1.0, 1.0)
    assert right.metrics["format_reward_func"] == 1.0
    wrong, _ = play(env, ["<answer>no idea</answer>"])
    assert (score(env, wrong).reward or 0.0) < 0.1
    nothing, _ = play(env, ["no tags"])
    assert score(env, nothing).reward == 0.0
    assert score(env, after_a_crash(env, state)).reward == 1.0
    told = env.row(0)
    assert (told.task, told.info.get("source_dataset")) == (
        ("chain_sum", None) if generation == "B" else ("", "chain_sum")
    )


def test_a_mixture_of_tasks_is_reproducible() -> None:
    pytest.importorskip("reasoning_gym", reason=RG)
    mixture = ["leg_counting", {"name": "chain_sum", "weight": 2.0, "config": {"min_terms": 2, "max_terms": 2}}]
    first, second, other = (
        ReasoningGymEnv(mixture, num_train_examples=6, num_eval_examples=0, seed=seed, system_prompt=None)
        for seed in (1, 1, 2)
    )
    prompts = [[env.row(i).prompt for i in range(6)] for env in (first, second, other)]
    assert prompts[0] == prompts[1] != prompts[2]
    assert [message["role"] for message in cast("list[dict[str, Any]]", prompts[0][0])] == ["user"]
    assert {first.row(i).task for i in range(6)} == {"leg_counting", "chain_sum"}


def test_an_unknown_task_is_named() -> None:
    pytest.importorskip("reasoning_gym", reason=RG)
    with pytest.raises(EnvironmentFault, match="chain_some"):
        ReasoningGymEnv("chain_some")


# TextArena

TA = "textarena is not installed: pip install 'bench-harness[textarena]'"
BASIC = ["apple", "house", "table", "train", "river", "go", "yellow"]
ALL = [*BASIC, "crane", "stone"]


@pytest.fixture(scope="module")
def nltk_data(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """nltk's data in small: the corpus of words, and a tagger that knows them. Once, since nltk remembers the place."""
    nltk = pytest.importorskip("nltk", reason=TA)
    tmp_path = tmp_path_factory.mktemp("nltk_data")
    words, tagger = tmp_path / "corpora" / "words", tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    for folder in (words, tagger):
        folder.mkdir(parents=True)
    (words / "en-basic").write_text("\n".join(BASIC) + "\n")
    (words / "en").write_text("\n".join(ALL) + "\n")
    for name, value in (("weights", {}), ("tagdict", dict.fromkeys([*ALL, "test"], "NN")), ("classes", ["NN"])):
        (tagger / f"averaged_perceptron_tagger_eng.{name}.json").write_text(json.dumps(value))
    before = nltk.data.path
    nltk.data.path = [str(tmp_path)]
    yield tmp_path
    nltk.data.path = before


def wordle(**options: Any) -> TextArenaEnv:
    pytest.importorskip("textarena", reason=TA)

    def solved(completion: Any) -> float:
        return float("correctly" in str(completion[-1]["content"]))

    given = {"num_train_examples": 4, "num_eval_examples": 3, "seed": 5, "rubric": Rubric([solved]), **options}
    return TextArenaEnv("Wordle-v0", **given)


def guess(word: str) -> str:
    return f"<think>hm</think><guess>[{word}]</guess>"


@pytest.mark.usefixtures("nltk_data")
def test_wordle_is_played_to_its_end(generation: Generation) -> None:
    env = wordle(feedback_fn=lambda text: text.rpartition("Feedback:")[2].strip())
    choose = random.Random(5)
    secrets = [choose.choice(BASIC[:5]) for _ in range(7)]
    assert [env.row(i).answer for i in range(env.row_count)] == secrets[4:]
    wrong = next(word for word in ("crane", "stone"))
    state, chat = play(env, [guess(wrong), guess(secrets[4])])
    assert len(chat.asked) == 2
    assert state["stop_condition"] == "has_final_env_response"
    contents = [message["content"] for message in state["completion"]]
    assert contents[1].startswith(" ".join(wrong.upper())) and "5 guesses left" not in contents[0]
    assert contents[-1] == "Congratulations! You guessed the word correctly!"
    assert "ta_env" not in state
    assert score(env, state).reward == 1.0
    assert score(env, after_a_crash(env, state)).reward == 1.0


@pytest.mark.usefixtures("nltk_data")
def test_rollouts_have_games_of_their_own_and_share_the_dictionaries() -> None:
    env = wordle()

    async def both() -> list[Any]:
        states = [State.begin(example(env, index), 0, "scripted", {}) for index in (0, 1)]
        prepared = [env.prepared(state) for state in states]
        for state in prepared:
            await env.setup_state(state)
        return [state["ta_env"] for state in prepared]

    games = asyncio.run(both())
    inner = [_inside(game) for game in (*games, env.ta_env)]
    assert len({id(game) for game in inner}) == 3
    assert len({id(game.dictionary) for game in inner}) == 1
    assert len({id(game.word_list) for game in inner}) == 1
    assert [game.state.game_state["secret_word"] for game in games] == [env.row(0).answer, env.row(1).answer]
    games[0].step("[crane]")
    assert [len(game.state.game_state["guess_history"]) for game in inner] == [1, 0, 0]


def _inside(game: Any) -> Any:
    while hasattr(game, "env"):
        game = game.env
    return game


@pytest.mark.usefixtures("nltk_data")
def test_making_a_game_asks_no_network_and_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    nltk = importlib.import_module("nltk")
    download = nltk.download
    wordle()
    assert nltk.download is download
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("nltk_data")
def test_a_game_without_a_secret_word_is_refused() -> None:
    pytest.importorskip("textarena", reason=TA)
    with pytest.raises(EnvironmentFault, match="no list of words"):
        TextArenaEnv("FrozenLake-v0")
    with pytest.raises(EnvironmentFault, match="Wordel-v0"):
        TextArenaEnv("Wordel-v0")


@pytest.mark.slow
def test_without_the_word_lists_it_says_how_to_get_them(tmp_path: Path) -> None:
    """In a process of its own, whose nltk finds neither data nor a server to ask."""
    import subprocess
    import sys

    pytest.importorskip("textarena", reason=TA)
    source = (
        "import nltk, nltk.downloader\n"
        f"nltk.data.path[:] = [{str(tmp_path)!r}]\n"
        "nltk.downloader._downloader = nltk.downloader.Downloader('http://127.0.0.1:9/index.xml')\n"
        "nltk.download = nltk.downloader._downloader.download\n"
        "from harness.plugins.classic.text_arena_env import TextArenaEnv\n"
        "from harness.core.errors import EnvironmentFault\n"
        "try:\n    TextArenaEnv()\nexcept EnvironmentFault as error:\n    print('refused:', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120, check=True)
    assert "refused: TextArena's word games need nltk's data" in done.stdout
    assert "python -m nltk.downloader words averaged_perceptron_tagger_eng" in done.stdout


@pytest.mark.parametrize(
    ("build", "extra"),
    [(lambda: TextArenaEnv(), "textarena"), (lambda: ReasoningGymEnv("chain_sum"), "reasoning-gym")],
)
def test_an_absent_package_is_named_with_its_extra(build: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for module in ("textarena", "nltk", "reasoning_gym"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentFault, match=rf"pip install 'bench-harness\[{extra}\]'"):
        build()
