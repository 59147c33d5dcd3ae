"""Log-likelihoods of texts from `/completions` with `echo` and `logprobs`. Without a tokenizer, prompts are texts, and
the tokens of the continuation are found by `text_offset`; with one, prompts are token ids, as lm-eval sends them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from harness.core.errors import EnvironmentFault, EnvironmentLoadError, ModelError, SystemicError
from harness.core.types import JsonDict, ModelResponse
from harness.plugins.lm_eval_tasks.library import EXTRA, SEED, part

SCORING: JsonDict = {
    "max_tokens": 1, "max_completion_tokens": None, "temperature": 0, "logprobs": 1, "echo": True, "seed": SEED,
    "stop": None,
}  # fmt: skip
"""Sampling arguments of a request for the log-probabilities of its prompt."""

NEEDS = (
    "the task needs log-probabilities of the prompt: an endpoint whose /completions supports echo with logprobs, "
    "such as that of vLLM"
)

_REMEMBERED = 4096
"""Number of texts whose tokens are kept, since the choices of a document share a context."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """A prompt, and the part of it whose log-likelihood is asked for."""

    text: str
    start: int
    """First character of the part, or with `ids` its first token."""
    ids: Sequence[int] | None = None

    def sampling_args(self, given: JsonDict) -> JsonDict:
        """Return the arguments of the request.

        Args:
            given: Arguments of the run.
        """
        if self.ids is None:
            return SCORING
        return {**SCORING, "extra_body": {**(given.get("extra_body") or {}), "prompt": list(self.ids)}}

    def read(self, response: ModelResponse) -> tuple[float, bool]:
        """Return the log-likelihood of the part, and whether each of its tokens is the likeliest.

        Raises:
            SystemicError: the endpoint sent no log-probabilities of the prompt, or not where its tokens begin.
            ModelError: a log-probability is no number.
            EnvironmentFault: no token begins in the part.
        """
        found = response.logprobs or {}
        values, tops = _items(found.get("token_logprobs")), _items(found.get("top_logprobs"))
        places = self._by_offset(found) if self.ids is None else range(self.start, len(self.ids))
        pairs = [(values[at], _likeliest(tops[at])) for at in places if at < min(len(values), len(tops))]
        numbers = [value for value, top in pairs if isinstance(value, int | float) and top is not None]
        # The reply has the tokens of the prompt, and at most the one that was asked for.
        is_whole = self.ids is None or len(values) - len(self.ids) in (0, 1)
        if len(numbers) != len(places) or not is_whole:
            raise SystemicError(f"the reply lacks log-probabilities of the prompt; {NEEDS}", reason="no_logprobs")
        if any(math.isnan(each) or each == math.inf for each in numbers):
            raise ModelError("the reply has a log-probability that is no number", reason="bad_response")
        return sum(numbers), all(value == top for value, top in pairs)

    def _by_offset(self, found: JsonDict) -> range:
        """Return the numbers of the tokens that begin in the part. Endpoints that ignore `echo` have the tokens of the
        reply here, and some count special tokens, or a character in two tokens twice; so tokens and text must fit."""
        tokens, offsets = _items(found.get("tokens")), _items(found.get("text_offset"))
        # A first token that is not in the text, such as <s>, moves the others to the right.
        first = int(bool(tokens) and not (tokens[0] and self.text.startswith(str(tokens[0]))))
        moved = offsets[first] if first < len(offsets) else 0
        places = [each - moved for each in offsets if isinstance(each, int)]
        end = len(self.text)
        within = sum(each < end for each in places)
        fits = within > first and len(tokens) == len(places) == len(offsets) <= within + 1
        for token, place in zip(tokens[first:within], places[first:within], strict=False):
            fits = fits and (self.text.startswith(str(token), place) or "\ufffd" in str(token))
        reaches = fits and (within < len(places) or places[within - 1] + len(str(tokens[within - 1])) >= end)
        if not reaches:
            raise SystemicError(
                f"the reply has no text_offset of the prompt that fits its tokens: set tokenizer; {NEEDS}",
                reason="no_logprobs",
            )
        start = max(first, sum(each < self.start for each in places))
        if start == within and self.start < end:
            raise EnvironmentFault("no token begins in a continuation, so it cannot be scored as text: set tokenizer")
        return range(start, within)


def _likeliest(top: object) -> float | None:
    """Return the highest log-probability at the place of a token; None if it is unknown."""
    found = cast("dict[str, object]", top).values() if isinstance(top, dict) else ()
    return max((each for each in found if isinstance(each, int | float)), default=None)


def _items(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


class TextSplitter:
    """Scores texts without a tokenizer."""

    def pair(self, context: str, continuation: str) -> ScoredText:
        """Return the prompt for the log-likelihood of a continuation. Spaces at the end of the context belong to the
        continuation, as in lm-eval.

        Raises:
            EnvironmentFault: the context is empty.
        """
        kept = context.rstrip()
        if not kept:
            raise EnvironmentFault("a request of the task has no context, so it needs a tokenizer: set tokenizer")
        return ScoredText(context + continuation, len(kept))

    def windows(self, text: str) -> Iterator[ScoredText]:
        """Always raise EnvironmentFault, since a text can be split into windows only by its tokens."""
        raise EnvironmentFault("the task scores whole texts, so it needs a tokenizer: set tokenizer")


class TokenSplitter:
    """Scores token ids.

    Args:
        name: The address of a server with `/tokenize` and `/tokenizer_info`, with or without `/v1`; or a local folder
            with a tokenizer, or its name on the Hugging Face Hub.
        max_length: Maximum number of tokens of a request and its reply. Longer contexts lose their beginning, and
            longer texts are split into windows, as in lm-eval.

    Raises:
        EnvironmentLoadError: the tokenizer cannot be read.
    """

    def __init__(self, name: str, max_length: int) -> None:
        self._most = max_length - 1
        is_remote = name.startswith(("http://", "https://"))
        try:
            if is_remote:
                self.tokenizer: Any = part("utils").RemoteTokenizer(name.rstrip("/").removesuffix("/v1"))
            else:
                self.tokenizer = _transformers().from_pretrained(name)
            first = self.tokenizer.bos_token_id
            self._prefix: int | None = self.tokenizer.eos_token_id if first is None else first
        except EnvironmentLoadError:
            raise
        except Exception as error:  # of the library, for a wrong address or folder
            raise EnvironmentLoadError(f"tokenizer: {error}") from error
        self._options: JsonDict = {} if is_remote else {"add_special_tokens": False}
        self.encode = lru_cache(_REMEMBERED)(self._encode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, **self._options))

    def pair(self, context: str, continuation: str) -> ScoredText:
        """Return the prompt for the log-likelihood of a continuation. After an empty context it begins with the
        tokenizer's first token.

        Raises:
            EnvironmentFault: the continuation is longer than `max_length`, or there is no first token.
        """
        kept = context.rstrip()
        if kept or context:
            whole, before = self.encode(context + continuation), self.encode(kept or context)
            return self._cut(before, whole[len(before) :], context + continuation)
        ids = self.encode(continuation)
        if ids[:1] == (self._first(),):
            return self._cut(ids[:1], ids[1:], continuation)
        return self._cut((self._first(),), ids, continuation)

    def windows(self, text: str) -> Iterator[ScoredText]:
        """Return the prompts whose parts together are the text."""
        utils = part("utils")
        found = utils.get_rolling_token_windows(
            token_list=list(self.encode(text)), prefix_token=self._first(), max_seq_len=self._most - 1, context_len=1
        )
        for before, scored in map(utils.make_disjoint_window, found):
            yield self._cut(before, scored, text)

    def _first(self) -> int:
        if self._prefix is None:
            raise EnvironmentFault("the tokenizer has neither a first nor a last token for texts without context")
        return self._prefix

    def _cut(self, before: Sequence[int], scored: Sequence[int], text: str) -> ScoredText:
        whole = [*before, *scored]
        start = len(before) - max(0, len(whole) - self._most)
        if start <= 0:
            raise EnvironmentFault(f"a continuation of {len(scored)} tokens leaves no context: raise max_length")
        return ScoredText(text, start, whole[-self._most :])


def _transformers() -> Any:
    try:
        return importlib.import_module("transformers").AutoTokenizer
    except ImportError as error:
        raise EnvironmentLoadError(
            f"a local tokenizer needs {error.name}, which is not installed: {EXTRA} transformers"
        ) from error


Splitter = TextSplitter | TokenSplitter
