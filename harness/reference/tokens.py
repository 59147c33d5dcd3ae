"""Tokens of the reference server and their pseudo log-probabilities, for `echo` with `logprobs` and for `/tokenize`. A
token's log-probability is a hash of the model's name, all tokens before it, and itself: the same on every machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b

from harness.core.types import JsonDict

END = "<|endoftext|>"
"""The text of the token with id 0, which ends texts. Clients put it before a text that has no context."""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""Jinja template of a conversation as text, for clients that score replies to messages."""

_PIECES = re.compile(r"<\|endoftext\|>| ?[A-Za-z0-9]{1,5}| ?[!-/:-@\[-`{-~]|.", re.DOTALL)
"""Tokens: up to five letters or digits, or one mark, with a space before it; or any single character. The tokens of the
beginning of a text are those of the text, as far as they end there."""

_MOST_BYTES = 6
"""Maximum length of a token in UTF-8, so that its id is an integer that every JSON parser can read."""

_OTHER = " the"
"""The likeliest token where the prompt has another one."""


def tokens_of(text: str) -> list[str]:
    """Split a text into tokens, which together are the text."""
    return _PIECES.findall(text)


def encode(text: str) -> list[int]:
    """Return the ids of a text's tokens: a one, then the bytes of the token, as one integer; 0 for `END`."""
    return [
        0 if token == END else int.from_bytes(b"\1" + token.encode("utf-8", "replace"), "big")
        for token in tokens_of(text)
    ]


def decode(ids: Iterable[object]) -> list[str]:
    """Return the tokens with these ids.

    Raises:
        ValueError: an id is not that of a token.
    """
    tokens: list[str] = []
    for each in ids:
        if not isinstance(each, int) or isinstance(each, bool) or not 0 <= each < 1 << 8 * (_MOST_BYTES + 1):
            raise ValueError(f"{each!r} is not the id of a token")
        whole = each.to_bytes((each.bit_length() + 7) // 8, "big")
        if each and whole[0] != 1:
            raise ValueError(f"{each!r} is not the id of a token")
        tokens.append(whole[1:].decode() if each else END)
    return tokens


def logprobs(model: str, tokens: list[str]) -> JsonDict:
    """Return the field `logprobs` of a completion choice. The first token has no log-probability, as at other servers.

    Args:
        model: The model's name.
        tokens: The tokens of the prompt, and then those of the completion.
    """
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []
    context, place = blake2b(model.encode(), digest_size=8).digest(), 0
    for number, token in enumerate(tokens):
        context = blake2b(context + token.encode("utf-8", "replace"), digest_size=8).digest()
        share = int.from_bytes(context, "big") / 2.0**64
        value = -0.02 - 7.0 * share
        values.append(value if number else None)
        # The likeliest two thirds of the tokens are those that the model would have chosen.
        top = {token: value} if share < 2 / 3 else {_OTHER if token != _OTHER else END: value / 2.0, token: value}
        tops.append(top if number else None)
        offsets.append(place)
        place += len(token)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}
