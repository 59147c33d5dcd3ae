"""Conversion of a task's chat options to the arguments of a request to the model."""

from __future__ import annotations

import json
from collections.abc import Mapping

from harness.core.errors import ConfigError
from harness.core.redact import REDACTED
from harness.core.types import JsonDict
from harness.models.wire import check_settings_of_sampling

WIRE_NAMES: Mapping[str, str] = {
    "maxTokens": "max_tokens", "maxCompletionTokens": "max_completion_tokens", "maxOutputTokens": "max_tokens",
    "topP": "top_p", "topK": "top_k", "minP": "min_p", "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty", "repetitionPenalty": "repetition_penalty", "stopSequences": "stop",
    "responseFormat": "response_format", "toolChoice": "tool_choice", "parallelToolCalls": "parallel_tool_calls",
    "reasoningEffort": "reasoning_effort", "logitBias": "logit_bias", "topLogprobs": "top_logprobs",
    "serviceTier": "service_tier", "extraBody": "extra_body", "extraHeaders": "extra_headers", "apiKey": "api_key",
}  # fmt: skip
"""Chat options that have another name in requests. All others keep their names."""


def sampling_args_of(chat_options: JsonDict) -> JsonDict:
    """Return the sampling arguments among a task's chat options: all options except the tools, by their names in
    requests.

    Raises:
        ConfigError: two options are the same argument, or one is not allowed in a run.
    """
    args: JsonDict = {}
    for name, value in chat_options.items():
        wire = WIRE_NAMES.get(name, name)
        if wire == "tools":
            continue
        if wire in ("headers", "extra_headers"):
            raise ConfigError(f"chatOptions.{name}: set headers in the definition of the model")
        if wire in args:
            raise ConfigError(f"chatOptions: {wire} is given in two spellings; remove one")
        if f'"{REDACTED}"' in json.dumps(value, default=str):
            raise ConfigError(f"chatOptions.{name}: the stored value lacks a secret; give the option again")
        args[wire] = value
    check_settings_of_sampling(args)
    return args
