"""What reads an answer out of what a model said: one family of parsers a module. Owns no scoring."""

from __future__ import annotations

from harness.parsers.extract import extract_boxed_answer, extract_hash_answer
from harness.parsers.parser import Parser
from harness.parsers.think import MaybeThinkParser, ThinkParser
from harness.parsers.xml import XMLParser

__all__ = ["MaybeThinkParser", "Parser", "ThinkParser", "XMLParser", "extract_boxed_answer", "extract_hash_answer"]
