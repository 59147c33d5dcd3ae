"""Word games of the library TextArena as classic environments. One game is created, and each rollout gets a copy that
shares its dictionaries. The word lists of nltk, which the games need, are downloaded only if they are not on this
machine."""

from __future__ import annotations

import copy
import importlib
import random
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

from harness.core.errors import EnvironmentFault
from harness.core.state import State
from harness.core.types import JsonDict, Messages, Prompt
from harness.envs.hooks import cleanup
from harness.plugins.classic.multi_turn import MultiTurnEnv
from harness.plugins.classic.parsers import Parser, XMLParser
from harness.rubrics.parser import identity
from harness.rubrics.rubric import Rubric as NativeRubric
from harness.usercode.threads import offload

CORPORA = {"words": "corpora/words", "averaged_perceptron_tagger_eng": "taggers/averaged_perceptron_tagger_eng"}
"""Data of the library nltk that the word games need: the path of each by its download name."""

_SHARED = ("dictionary", "word_list")
"""Attributes that a game never changes and that all copies of it share, such as half a million words (38 MB)."""

_making = threading.Lock()


class TextArenaEnv(MultiTurnEnv):
    """`vf.TextArenaEnv`: a TextArena game for one player with a secret word.

    Args:
        game: Id of a game that has a list of words and a secret word, such as `Wordle-v0`.
        num_train_examples: Number of rows of the training dataset; each is a word to guess, chosen by `seed`.
        num_eval_examples: Number of rows of the evaluation dataset; if 0, the training rows are evaluated.
        system_prompt: Prepended to the game's own instructions.
        parser: Parses the guess; `XMLParser(["think", "guess"], answer_field="guess")` by default.
        rubric: Scores rollouts.
        feedback_fn: Converts the game's output to the message to the model.
        seed: Seed of the words.
        **kwargs: See `MultiTurnEnv`.

    Raises:
        EnvironmentFault: textarena is not installed, nltk's word lists cannot be found or downloaded, or the game has
            no secret word.
    """

    def __init__(
        self,
        game: str = "Wordle-v0",
        num_train_examples: int = 1000,
        num_eval_examples: int = 0,
        system_prompt: str | None = None,
        parser: Parser | None = None,
        rubric: NativeRubric | None = None,
        feedback_fn: Callable[[str], str] = identity,
        seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.game = game
        self.num_train_examples, self.num_eval_examples = num_train_examples, num_eval_examples
        self.feedback_fn = feedback_fn
        self.seed = seed
        self.ta_env = _make(game)
        words = _words(self.ta_env, game)
        self.shared_memo = _shared(self.ta_env)
        question = self.ta_env.get_observation()[1]
        choose = random.Random(seed)
        rows = [
            {"question": question, "answer": choose.choice(words)}
            for _ in range(num_train_examples + num_eval_examples)
        ]
        super().__init__(
            dataset=rows[:num_train_examples] or None,
            eval_dataset=rows[num_train_examples:] or None,
            system_prompt=system_prompt,
            parser=parser or XMLParser(fields=["think", "guess"], answer_field="guess"),
            rubric=rubric,
            message_type="chat",
            **kwargs,
        )

    async def setup_state(self, state: State) -> State:
        """Give the rollout its own copy of the game, with the secret word of its row."""
        game = await offload.run(copy.deepcopy, self.ta_env, dict(self.shared_memo))
        game.state.game_state["secret_word"] = state["answer"]
        state["ta_env"] = game
        return state

    @cleanup
    async def cleanup_ta_env(self, state: State) -> None:
        """Remove the game from the state, so that its memory is freed."""
        state.pop("ta_env", None)

    async def env_response(self, messages: Messages, state: State, **kwargs: Any) -> Prompt:
        """Play the guess in the model's reply, and return the game's response."""
        guess = str(self.parser.parse_answer(messages))
        is_over, text = await offload.run(self._play, state["ta_env"], guess)
        answer = [{"role": "user", "content": text}]
        if is_over:
            state["final_env_response"] = answer
        return cast(Prompt, answer)

    def _play(self, game: Any, guess: str) -> tuple[bool, str]:
        game.step(guess)
        if game.state.done:
            return True, str(game.state.game_info[0]["reason"])
        return False, str(self.feedback_fn(game.get_observation()[1]))


def _make(game: str) -> Any:
    try:
        nltk, textarena = (importlib.import_module(name) for name in ("nltk", "textarena"))
    except ImportError as error:
        raise EnvironmentFault(
            f"TextArenaEnv needs {error.name}, which is not installed: pip install 'bench-harness[textarena]'"
        ) from error
    missing: list[str] = []
    with _making, _at_hand_first(nltk, missing):
        try:
            made = textarena.make(env_id=game)
        except LookupError as error:
            raise EnvironmentFault(_no_words(missing)) from error
        except ValueError as error:
            raise EnvironmentFault(f"TextArenaEnv(game={game!r}): {error}") from error
        made.reset(num_players=1)
    return made


@contextmanager
def _at_hand_first(nltk: Any, missing: list[str]) -> Generator[None]:
    """Return a context manager for creating a game, in which nltk silently downloads only missing data. Without it,
    games download all their data each time and print messages."""
    download = nltk.download

    def lookup(names: str | list[str], *args: Any, **options: Any) -> bool:
        wanted = [names] if isinstance(names, str) else names
        absent = [name for name in wanted if not _has(nltk, name)]
        for name in absent:
            download(name, *args, **{**options, "quiet": True})
        missing.extend(name for name in absent if not _has(nltk, name))
        return not missing

    nltk.download = lookup
    try:
        yield
    finally:
        nltk.download = download


def _has(nltk: Any, name: str) -> bool:
    place = CORPORA.get(name)
    for path in (place, f"{place}.zip") if place else ():
        try:
            nltk.data.find(path)
        except LookupError:
            continue
        return True
    return False


def _no_words(missing: list[str]) -> str:
    names = " ".join(dict.fromkeys(missing)) or " ".join(CORPORA)
    return (
        f"TextArena's word games need nltk's data ({names}), which is not on this machine and could not be downloaded. "
        f"Run `python -m nltk.downloader {' '.join(CORPORA)}` on a machine with a network connection; if it is another "
        f"machine, copy its folder nltk_data and set the environment variable NLTK_DATA to the copy's path"
    )


def _base(game: Any) -> Any:
    """Return the game object without the wrappers around it."""
    while hasattr(game, "env"):
        game = game.env
    return game


def _words(game: Any, name: str) -> list[str]:
    words: Any = getattr(_base(game), "word_list", None)
    if isinstance(words, dict):
        parts = cast("list[list[str] | str]", list(cast(JsonDict, words).values()))
        words = [word for part in parts for word in ([part] if isinstance(part, str) else part)]
    state: object = game.state.game_state
    if not words or not isinstance(state, dict) or "secret_word" not in state:
        raise EnvironmentFault(
            f"TextArenaEnv(game={name!r}): the game has no list of words with a secret word, so dataset "
            "rows cannot select the word; write a MultiTurnEnv for this game"
        )
    return list(words)


def _shared(game: Any) -> dict[int, Any]:
    """Return a memo for `copy.deepcopy` with a game's large dictionaries, so that copies of the game share them."""
    base = _base(game)
    values = [getattr(base, name, None) for name in _SHARED]
    return {id(value): value for value in values if value is not None}
