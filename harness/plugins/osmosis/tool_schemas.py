"""Types of osmosis_ai for a model's tool calls and for the results of tools. bench itself passes both as dicts."""

from __future__ import annotations

import json
from typing import Any, Literal, cast

from pydantic import BaseModel

from harness.core.types import JsonDict


class OpenAIFunctionParsedSchema(BaseModel):
    """Function call of a model's reply, with the arguments as JSON text."""

    name: str
    arguments: str


class OpenAIFunctionCallSchema(BaseModel):
    """Function call of a model's reply, with parsed arguments."""

    name: str
    arguments: JsonDict

    @staticmethod
    def from_openai_function_parsed_schema(
        parsed_schema: OpenAIFunctionParsedSchema,
    ) -> tuple[OpenAIFunctionCallSchema, bool]:
        """Parse the arguments of a function call.

        Args:
            parsed_schema: The call, with the arguments as JSON text.

        Returns:
            The call, and whether its arguments are not a JSON object, in which case they are empty.
        """
        try:
            arguments: object = json.loads(parsed_schema.arguments)
        except (ValueError, RecursionError):
            arguments = None
        has_error = not isinstance(arguments, dict)
        parsed = {} if has_error else cast(JsonDict, arguments)
        return OpenAIFunctionCallSchema(name=parsed_schema.name, arguments=parsed), has_error


class OpenAIFunctionToolCall(BaseModel):
    """Tool call of a model's reply, in OpenAI's format."""

    id: str
    type: Literal["function"] = "function"
    function: OpenAIFunctionCallSchema


class ToolResponse(BaseModel):
    """Result of a tool: text, images, videos, or several of these.

    Raises:
        pydantic.ValidationError: `image` or `video` is not a list.
    """

    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

    def is_empty(self) -> bool:
        """Return whether the result has no content."""
        return not (self.text or self.image or self.video)

    def is_text_only(self) -> bool:
        """Return whether the result has text and no other content."""
        return bool(self.text) and not (self.image or self.video)
