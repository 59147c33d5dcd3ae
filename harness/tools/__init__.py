"""Tools: functions that models may call, with their descriptions, arguments and results."""

from __future__ import annotations

from harness.tools.results import MAX_OUTPUT_CHARS, to_content
from harness.tools.tool import Tool, call_tool, parse_arguments, read_tool

__all__ = ["MAX_OUTPUT_CHARS", "Tool", "call_tool", "parse_arguments", "read_tool", "to_content"]
