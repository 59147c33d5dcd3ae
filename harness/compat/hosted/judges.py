"""The judges of hosted rubrics: a rubric that holds an SDK client for its judge is given one that asks through the
run's own clients, limiter and accounts. Owns the exchange; a client that code keeps elsewhere goes on as it is."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from harness.compat.hosted.dialect import Dialect, to_wire
from harness.compat.openai_client import async_openai, is_sdk_client
from harness.rubrics.judge_port import JudgeSpec, ask
from harness.state import State
from harness.types import JsonDict, ModelResponse, Prompt

logger = logging.getLogger(__name__)

scoring: ContextVar[State | None] = ContextVar("scoring", default=None)
"""The rollout that the running reward function is about: what its judge says is kept there."""


def exchange_judges(rubrics: Iterable[Any], dialect: Dialect) -> tuple[JudgeSpec, ...]:
    """Put clients of ours into the place of the judges' own.

    Args:
        rubrics: The package's rubrics.
        dialect: How its release speaks.

    Returns:
        What the engine must connect.
    """
    found: list[JudgeSpec] = []
    for rubric in rubrics:
        client = getattr(rubric, "judge_client", None)
        if client is None:
            continue
        if not is_sdk_client(client):
            logger.warning(
                "%s asks its judge through a client of its own (%s): what it costs and how often it is asked is not "
                "known here",
                type(rubric).__name__, type(client).__name__,
            )  # fmt: skip
            continue
        spec = _spec(rubric, client)
        found.append(spec)
        ours = async_openai(_Judge(spec))
        rubric.judge_client = ours
        objects: dict[str, Any] = rubric.class_objects
        objects.update({name: ours for name, value in objects.items() if value is client})
        if dialect.is_typed:
            _tell_the_question(rubric, objects)
    return tuple(found)


def _tell_the_question(rubric: Any, objects: dict[str, Any]) -> None:
    """Pass the prompt to `judge` in dicts: in messages of the package's own kind it finds no question, and asks about
    an empty one."""
    judge = objects.get("judge")
    if not inspect.ismethod(judge):
        return

    async def told(prompt: Any, *args: Any, **kwargs: Any) -> Any:
        return await judge(to_wire(prompt), *args, **kwargs)

    rubric.judge = objects["judge"] = told


def _spec(rubric: Any, client: Any) -> JudgeSpec:
    headers = cast("Mapping[str, object]", getattr(client, "_custom_headers", {}))
    return JudgeSpec(
        model=str(rubric.judge_model),
        base_url=str(client.base_url).rstrip("/"),
        headers={name: value for name, value in headers.items() if isinstance(value, str)},
        # The rubric passes its sampling arguments with each call; here they only say what is measured.
        prompt={name: getattr(rubric, name, None) for name in ("judge_prompt", "judge_sampling_args")},
        key=client.api_key or None,
    )


class _Judge:
    """A judge as a `Chat`."""

    def __init__(self, spec: JudgeSpec) -> None:
        self._spec = spec

    @property
    def model(self) -> str:
        """The judge's name as the rubric gives it."""
        return self._spec.model

    async def __call__(
        self,
        prompt: Prompt,
        *,
        tools: Sequence[JsonDict] | None = None,
        sampling_args: Mapping[str, Any] | None = None,
    ) -> ModelResponse:
        """Ask the judge about the rollout that is being scored."""
        asked = await ask(self._spec, prompt, scoring.get(), tools=tools, sampling_args=sampling_args)
        return asked.response
