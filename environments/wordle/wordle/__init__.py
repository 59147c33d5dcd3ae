"""Wordle: find a five-letter word in six guesses from the hints that follow each of them.

Owns the conversation, the rewards and the reference policy. `game` owns the rules and the words.
"""

from __future__ import annotations

from harness import Example, JsonDict, Messages, MultiTurnEnv, Rubric, State
from harness.errors import ConfigError
from wordle.game import GUESSES, WORD_LENGTH, broken_hint, marks, read_guess, secrets, word_list, word_list_id

RULES = f"""\
You are playing Wordle. Find the secret word, a common English word of {WORD_LENGTH} letters, in {GUESSES} guesses.
Write each guess in <guess> tags, one in every reply, like this: <guess>abcde</guess>. Any {WORD_LENGTH} letters may be
guessed. You will be shown the guess with a mark under each letter:
G: the letter is in the secret word at this place.
Y: the letter is in the secret word at another place.
-: the secret word has no (more) such letter.
A reply without a valid guess uses up a guess."""

HARD_MODE_RULES = """
Hard mode: a guess must use every hint so far. Letters marked G stay where they are, letters marked Y must be used."""


class WordleEnv(MultiTurnEnv):
    """A game a rollout. `state["guesses"]` holds what was guessed, so that rewards and state columns can read it."""

    async def setup_state(self, state: State) -> State:
        """A game begins without guesses."""
        state["guesses"] = []
        return state

    async def env_response(self, messages: Messages, state: State, **kwargs: object) -> Messages:
        """The marks for the newest guess; the last ones end the game."""
        turn = judge(self.parser.parse_answer(messages[-1:]) or "", state)
        state["guesses"].append(turn)
        left = GUESSES - len(state["guesses"])
        if turn["marks"] == "G" * WORD_LENGTH:
            outcome = "You found the word."
        elif left:
            outcome = f"{left} {'guesses' if left > 1 else 'guess'} left."
        else:
            outcome = f"No guesses left. The word was {state['answer'].upper()}."
        shown = turn["problem"] or f"{' '.join(turn['word'].upper())}\n{' '.join(turn['marks'])}"
        response: Messages = [{"role": "user", "content": f"{shown}\n{outcome}"}]
        if not left or won(state):
            state["final_env_response"] = response
        return response

    def reference_reply(self, example: Example, messages: Messages) -> str:
        """The best possible player guesses the secret word at once."""
        return f"<guess>{example.answer}</guess>"


def judge(reply: str, state: State) -> JsonDict:
    """One entry of `state["guesses"]`: the word, and its marks or what is wrong with it."""
    word, problem = read_guess(reply)
    entry: JsonDict = {"word": word, "well_formed": not problem, "marks": "", "problem": problem}
    if not problem and state["info"]["hard_mode"]:
        hints = [(turn["word"], turn["marks"]) for turn in state["guesses"] if turn["marks"]]
        entry["problem"] = broken_hint(word, hints)
    if not entry["problem"]:
        entry["marks"] = marks(state["answer"], word)
    return entry


def won(state: State) -> bool:
    """Whether the newest guess is the secret word."""
    return bool(state["guesses"]) and state["guesses"][-1]["marks"] == "G" * WORD_LENGTH


def win(state: State) -> float:
    """1 if the word was found, else 0."""
    return float(won(state))


def turns(state: State) -> float:
    """1 for a word found with the first guess, a sixth less for every further guess, 0 for a word not found."""
    return (GUESSES + 1 - len(state["guesses"])) / GUESSES if won(state) else 0.0


def format(state: State) -> float:  # the name of the metric
    """The share of replies that hold exactly one guess, of five letters."""
    guesses = state["guesses"]
    return sum(turn["well_formed"] for turn in guesses) / len(guesses) if guesses else 0.0


def load_environment(num_examples: int = -1, seed: int = 0, hard_mode: bool = False) -> WordleEnv:
    """The environment; no secret word occurs twice.

    Args:
        num_examples: How many secret words there are; -1 for all of the list.
        seed: Another seed gives the words another order.
        hard_mode: Whether guesses must use all hints so far.

    Raises:
        ConfigError: an argument is out of range or of the wrong type.
    """
    if num_examples == -1:
        num_examples = len(word_list())
    check_count("num_examples (-1 for all)", num_examples, 1, len(word_list()))
    check_count("seed", seed, 0)
    if not isinstance(hard_mode, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # it may come from JSON
        raise ConfigError(f"hard_mode must be true or false, not {hard_mode!r}")
    return WordleEnv(
        eval_dataset=lambda: make_rows(num_examples, seed, hard_mode),
        system_prompt=RULES + HARD_MODE_RULES * hard_mode,
        # eighths, so that the best game sums to exactly 1; a won game scores above 0.75, a lost one at most 0.125
        rubric=Rubric(funcs=[win, turns, format], weights=[0.75, 0.125, 0.125]),
    )


def make_rows(count: int, seed: int, hard_mode: bool) -> list[JsonDict]:
    """The rows of the dataset; games are numbered, so that no two prompts are equal."""
    info = {"hard_mode": hard_mode, "word_list": word_list_id()}
    return [
        {"question": f"Game {number}. Make the first of your {GUESSES} guesses.", "answer": word, "info": info}
        for number, word in enumerate(secrets(seed)[:count], 1)
    ]


def check_count(name: str, value: object, least: int, most: int | None = None) -> None:
    """Refuse an argument that is no whole number in its range.

    Raises:
        ConfigError: names the argument, its range and what it was.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f"from {least} to {most}" if most is not None else f"of at least {least}"
        raise ConfigError(f"{name} must be a whole number {bounds}, not {value!r}")
