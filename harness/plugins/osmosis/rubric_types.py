"""Types and exceptions of osmosis_ai's `evaluate_rubric`."""

from __future__ import annotations

from typing import Any, TypedDict


class ModelInfo(TypedDict, total=False):
    """The judge model of a rubric: `provider` and `model`, and optionally a key and defaults of `evaluate_rubric`."""

    provider: str
    model: str
    api_key: str
    api_key_env: str
    score_min: float
    score_max: float
    system_prompt: str | None
    original_input: str | None
    timeout: float
    """Seconds, with all retries."""
    reasoning_effort: str | None


class RewardRubricRunResult(TypedDict):
    """Result of `evaluate_rubric` with `return_details=True`."""

    score: float
    """Between `score_min` and `score_max`."""
    explanation: str
    raw: Any
    """The judge's reply: `{"choices": [{"message", "finish_reason"}], "usage"}`."""


RubricResult = RewardRubricRunResult


class MissingAPIKeyError(RuntimeError):
    """The API key of the judge's provider is not set."""


class ProviderRequestError(RuntimeError):
    """The judge could not be asked, or its reply has no valid score.

    Args:
        provider: Name of the provider.
        model: Name of the model.
        detail: Reason of the failure.
    """

    def __init__(self, provider: str, model: str, detail: str) -> None:
        self.provider = provider
        self.model = model
        self.detail = detail.strip() or "Provider request failed with no additional detail."
        super().__init__(f"Provider '{provider}' request for model '{model}' failed. {self.detail}")


class ModelNotFoundError(ProviderRequestError):
    """The provider has no model of this name."""
