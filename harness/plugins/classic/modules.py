"""Modules that classic packages import: `verifiers`, `verifiers.types`, `verifiers.utils.data_utils`, … Each generation
of the API has its own modules. Every module has all names of its generation, since the original modules also export the
names that they import. Names are resolved on first use, so that nothing is imported needlessly."""

from __future__ import annotations

import difflib
import importlib
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from harness.plugins.classic.generation import OTHER, VERSIONS, Generation

NAME = "verifiers"

_HERE = "harness.plugins.classic"


def _at(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Map names of the classic API to names in a module of `harness`. Keyword arguments map names that differ."""
    return {name: f"{_HERE}.{module}:{renamed.get(name, name)}" for name in (*names, *renamed)}


def _dicts(*names: str) -> dict[str, str]:
    """Map names of typed dicts to `dict`, since their fields matter only to type checkers."""
    return dict.fromkeys(names, "builtins:dict")


def _any(*names: str) -> dict[str, str]:
    """Map names that occur only in annotations to `Any`."""
    return dict.fromkeys(names, "typing:Any")


_TYPES = {
    **_at("clients", "ClientConfig"),
    **_any("MessageType", "JsonPrimitive", "IndividualRewardFunc", "GroupRewardFunc", "RewardFunc"),
    **_dicts(
        "Info", "SamplingArgs", "Endpoints", "TrajectoryStep", "TrajectoryStepTokens", "RolloutInput", "RolloutScore",
        "RolloutScores", "GenerateMetadata", "GenerateOutputs", "BaseRolloutInput",
    ),
    **_at("records", Endpoint="Record", EvalConfig="Record"),
    **_at("faults", "Error"),
}  # fmt: skip
_TYPES_B = {
    **_any("ChatMessages", "Message", "Messages", "ModelResponse"),
    **_dicts(
        "ChatMessage", "ChatCompletionMessageParam", "ChatCompletionToolParam", "FunctionDefinition",
        "FunctionParameters", "ProcessedOutputs",
    ),
    **_at("state", State="DictState", RolloutTiming="Milliseconds"),
    **_at("responses", ChatCompletion="Response", Completion="Response"),
    **_at("messages", ChatCompletionMessageToolCall="WireToolCall"),
    "ChatCompletionRole": "builtins:str", "AsyncOpenAI": "openai:AsyncOpenAI",
}  # fmt: skip
_TYPES_C = {
    **_at("clients", EndpointClientConfig="ClientConfig"),
    **_any(
        "ClientType", "FinishReason", "DatasetBuilder", "StartCallback", "ProgressCallback", "LogCallback",
        "ThinkingBlock", "RedactedThinkingBlock", "AnthropicThinkingBlock", "MessageContent",
    ),
    **_dicts("ContentPart", "ResponseTokens", "TokenUsage", "ErrorInfo", "Message", "VersionInfo"),
    "Messages": "builtins:list",
    **_at("state", "TimeSpan", "TimeSpans", "RolloutTiming", State="TypedState"),
    **_at("responses", "Response", "ResponseMessage", "Usage"),
    **_at(
        "records", CustomBaseModel="Record", RolloutOutput="Record", EvalRunConfig="Record", ImageUrlSource="Record",
        InputAudioSource="Record", GenericContentPart="Record",
    ),
    **_at(
        "messages", "SystemMessage", "UserMessage", "AssistantMessage", "ToolMessage", "TextMessage", "ToolCall",
        "Tool", "TextContentPart", "ImageUrlContentPart", "InputAudioContentPart",
    ),
}  # fmt: skip

_IMPORTED = {
    **{name: f"typing:{name}" for name in ("Any", "Awaitable", "Callable", "Literal")},
    "BaseModel": "pydantic:BaseModel", "Path": "pathlib:Path", "TypedDict": "typing_extensions:TypedDict",
    "sys": "sys:",
}  # fmt: skip
"""Names that the original `verifiers.types` imports from elsewhere. It has no `__all__`, so `from verifiers.types
import *` exports them as well."""
_IMPORTED_C = {
    **_IMPORTED,
    **{name: f"typing:{name}" for name in ("TYPE_CHECKING", "TypeAlias", "cast")},
    **{name: f"pydantic:{name}" for name in ("ConfigDict", "Field", "computed_field", "field_validator")},
    **{name: f"{name}:" for name in ("json", "time", "uuid")},
    "NotRequired": "typing_extensions:NotRequired", "Mapping": "collections.abc:Mapping", "deepcopy": "copy:deepcopy",
}  # fmt: skip

_SHARED = {
    **_TYPES,
    **_at(
        "faults", "ModelError", "EmptyModelResponseError", "OverlongPromptError", "ToolError", "ToolParseError",
        "ToolCallError", "InfraError", "SandboxError",
    ),
    **_at("parsers", "Parser", "ThinkParser", "MaybeThinkParser", "XMLParser"),
    **_at("rubric", "Rubric"),
    **_at("rubric_group", "RubricGroup"),
    **_at("judge_rubric", "JudgeRubric", "DEFAULT_JUDGE_PROMPT"),
    **_at("math_rubric", "MathRubric"),
    **_at("environment", "Environment"),
    **_at("multi_turn", "MultiTurnEnv", "SingleTurnEnv", "MultiTurnMonitorRubric"),
    **_at("tool_env", "ToolEnv", "StatefulToolEnv", "ToolMonitorRubric", "filter_signature"),
    **_at("env_group", "EnvGroup", "EnvGroupRubric"),
    **_at("sandbox_env", "SandboxEnv", "SandboxMonitorRubric", "SandboxCreationError", "SandboxNotReadyError"),
    **_at(
        "python_env", "PythonEnv", "PythonMonitorRubric", "PythonWorkerNotReadyError", "PythonWorkerRequestError",
        "PythonWorkerDeadError",
    ),
    **_dicts("SandboxState", "PythonWorkerState"),
    **_at("text_arena_env", "TextArenaEnv"),
    **_at("reasoning_gym_env", "ReasoningGymEnv"),
    **_at("gym_env", "GymEnv", "EpisodicSumRubric"),
    **_at("mcp_env", "MCPEnv"),
    **{name: f"harness.envs.hooks:{name}" for name in ("stop", "cleanup", "teardown")},
    **_at("logs", "setup_logging", "print_prompt_completions_sample"),
    **_at(
        "example_sets", "load_example_dataset", "format_dataset", "strip_non_numeric", "BOXED_SYSTEM_PROMPT",
        "THINK_BOXED_SYSTEM_PROMPT", "extract_boxed_answer", "extract_hash_answer",
    ),
    **_at("toolbox", "maybe_await", "maybe_semaphore", "sanitize_tool_calls", "strip_nones_from_content"),
    "load_environment": "harness.engine.environment_loader:load_environment",
    "NullAsyncContext": "contextlib:nullcontext",
    **_at("messages", concat_messages="concat"),
}  # fmt: skip

_OF_GENERATION: dict[Generation, dict[str, str]] = {
    "B": {
        **_TYPES_B,
        **_at("toolbox", "convert_func_to_oai_tool", "parse_response_messages", "parse_is_truncated"),
    },
    "C": {
        **_TYPES_C,
        **_at("faults", "InvalidModelResponseError", "TunnelError", "BrowserSandboxError"),
        **_at("env_group", "ENV_GROUP_INFO_KEY"),
        **_at("logs", "log_level", "quiet_verifiers"),
        **_at(
            "toolbox", "ensure_keys", "MissingKeyError", "maybe_call_with_named_args", "normalize_messages",
            "convert_func_to_tool_def", "is_valid_tool_content_parts", "VALID_TOOL_CONTENT_PART_TYPES",
            maybe_normalize_messages="normalize_messages", parse_response_message="parse_response_messages",
        ),
        **_at("messages", from_raw_message="message_of"),
        "from_raw_content_part": "harness.rubrics.parser:identity", "NullContext": "contextlib:nullcontext",
        **_at(
            "clients", "Client", OpenAIChatCompletionsClient="Client", OpenAICompletionsClient="Client",
            OpenAIResponsesClient="Client", AnthropicMessagesClient="Client",
        ),
    },
}  # fmt: skip
"""Names that only one generation of the classic API has, and the `module:attribute` that implements each."""

NAMES: dict[Generation, dict[str, str]] = {kind: {**_SHARED, **own} for kind, own in _OF_GENERATION.items()}
"""All names of each generation of the classic API, and the `module:attribute` that implements each."""

EXPORTS: dict[Generation, list[str]] = {
    "B": [*_TYPES, *_TYPES_B, *_IMPORTED],
    "C": [*_TYPES, *_TYPES_C, *_IMPORTED_C],
}
"""Names that `from verifiers.types import *` exports, by generation."""

_MODULES: dict[str, tuple[str, ...]] = {
    "": ("errors", "types", "decorators"),
    "parsers": ("parser", "think_parser", "maybe_think_parser", "xml_parser"),
    "rubrics": ("rubric", "rubric_group", "judge_rubric", "math_rubric"),
    "envs": (
        "environment", "multiturn_env", "singleturn_env", "tool_env", "stateful_tool_env", "env_group", "sandbox_env",
        "python_env", "textarena_env", "reasoninggym_env",
    ),
    "envs.integrations": ("textarena_env", "reasoninggym_env"),
    "envs.experimental": ("gym_env", "mcp_env"),
    "clients": ("client",),
    "utils": (
        "data_utils", "env_utils", "logging_utils", "config_utils", "async_utils", "message_utils", "response_utils",
        "tool_utils",
    ),
}  # fmt: skip
"""Packages of the classic API (`verifiers` and those below it), and the modules in each."""

_PATHS = {*_MODULES, *(f"{package}.{name}".lstrip(".") for package, names in _MODULES.items() for name in names)}

_REFUSED: dict[str, str] = {
    name: "it trains models, which bench does not do"
    for name in ("GRPOTrainer", "GRPOConfig", "RLTrainer", "RLConfig", "grpo_defaults", "lora_defaults", "get_model",
                 "get_model_and_tokenizer")
} | {
    name: "it runs agents in a provider's remote sandboxes, which bench does not support"
    for name in ("CliAgentEnv", "HarborEnv", "RLMEnv", "BrowserEnv", "OpenEnvEnv")
} | {
    name: "it belongs to the newer task-set API (verifiers.v1), which is not supported, even if verifiers is installed"
    for name in ("Env", "EnvConfig", "Task", "Taskset", "TasksetConfig", "Harness", "HarnessConfig", "Toolset",
                 "ToolsetConfig", "MCPTool", "MCPToolConfig", "SandboxConfig", "User", "UserConfig", "v1", "setup",
                 "update", "metric", "reward", "advantage")
}  # fmt: skip
"""Names of the original `verifiers` package that bench does not implement, with the reasons for error messages."""

_made: dict[tuple[Generation, str], ModuleType] = {}


class ClassicModule(ModuleType):
    """One module of the classic API.

    Args:
        name: Full name of the module, such as `verifiers.types`.
        generation: Generation of the API.
    """

    def __init__(self, name: str, generation: Generation) -> None:
        super().__init__(name, f"Classic API of verifiers {VERSIONS[generation]}, implemented by bench-harness.")
        path = name.partition(".")[2]
        fields = vars(self)
        is_types = path == "types"
        imported = {} if not is_types else _IMPORTED if generation == "B" else _IMPORTED_C
        fields["_names"] = {**NAMES[generation], **imported}
        fields["_generation"] = generation
        fields["__spec__"] = ModuleSpec(name, None, origin=f"<classic API: {name}>", is_package=path in _MODULES)
        if path in _MODULES:
            fields["__path__"] = []
        if not path:
            fields["__version__"] = VERSIONS[generation]
        fields["__all__"] = sorted(EXPORTS[generation] if is_types else NAMES[generation])

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        target = fields["_names"].get(name)
        if target is not None:
            module, _, attribute = target.partition(":")
            try:
                found = importlib.import_module(module)
                value = getattr(found, attribute) if attribute else found
            except ModuleNotFoundError as error:
                if error.name != "openai":
                    raise
                words = "needs the openai package: pip install openai"
                raise AttributeError(f"{self.__name__}.{name} {words}") from error
            fields[name] = value
            return value
        below = module_of(fields["_generation"], f"{self.__name__}.{name}") if not name.startswith("__") else None
        if below is not None:
            return below
        raise AttributeError(_absent(self.__name__, name, fields["_generation"]))

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *vars(self)["_names"]})


def module_of(generation: Generation, name: str) -> ModuleType | None:
    """Return the module of the classic API with a full name such as `verifiers.types`; None if the name is unknown."""
    key = (generation, name)
    if key not in _made:
        root, _, path = name.partition(".")
        if root != NAME or path not in _PATHS:
            return None
        _made[key] = ClassicModule(name, generation)
    return _made[key]


def modules_of(generation: Generation) -> dict[str, ModuleType]:
    """Return all modules of a generation of the classic API, by their full names."""
    names = [f"{NAME}.{path}".rstrip(".") for path in sorted(_PATHS)]
    return {name: module for name in names if (module := module_of(generation, name)) is not None}


def _absent(module: str, name: str, generation: Generation) -> str:
    """Return the error message for a name that a module of the classic API does not have."""
    words = f"module {module!r} has no attribute {name!r}"
    if name in _REFUSED:
        return f"vf.{name} is not supported by bench: {_REFUSED[name]}"
    other = OTHER[generation]
    if name in NAMES[other]:
        return (
            f"{words} in verifiers {VERSIONS[generation]}, for which the package seems to be written; verifiers "
            f"{VERSIONS[other]} has it: add that version to the package's requirements"
        )
    near = difflib.get_close_matches(name, NAMES[generation], 1)
    return f"{words}; did you mean {near[0]!r}?" if near else words
