"""Table of the classic API: each module's names and their implementations here, and the error messages for missing
names."""

from __future__ import annotations

import difflib

from harness.plugins.classic.generation import VERSIONS, Generation

_HERE = "harness.plugins.classic"


def _at(module: str, *names: str, **renamed: str) -> dict[str, str]:
    """Map names to those of a `harness` module; keyword arguments map names that differ here."""
    return {name: f"{_HERE}.{module}:{renamed.get(name, name)}" for name in (*names, *renamed)}


_ERRORS = _at(
    "faults", "Error", "ModelError", "EmptyModelResponseError", "OverlongPromptError", "ToolError", "ToolParseError",
    "ToolCallError", "InfraError", "SandboxError",
)  # fmt: skip
_ERRORS_C = _at("faults", "InvalidModelResponseError", "TunnelError", "BrowserSandboxError")

_TYPES = {
    **_at(
        "names", "MessageType", "Info", "SamplingArgs", "IndividualRewardFunc", "GroupRewardFunc", "RewardFunc",
        "JsonPrimitive", "Endpoints", "ClientConfig",
        TrajectoryStep="Table", TrajectoryStepTokens="Table", RolloutInput="Table", RolloutScore="Table",
        RolloutScores="Table", GenerateMetadata="Table", GenerateOutputs="Table", BaseRolloutInput="Table",
    ),
    **_at("records", Endpoint="Record", EvalConfig="Record"),
    **_at("faults", "Error"),
}  # fmt: skip
_TYPES_B = {
    **_at(
        "names", "ChatMessage", "ChatMessages", "Message", "Messages", "ModelResponse",
        ChatCompletionMessageParam="ChatMessage", ChatCompletionToolParam="ToolParam", ChatCompletionRole="Role",
        FunctionDefinition="Info", FunctionParameters="Info", ProcessedOutputs="Info",
    ),
    **_at("state", State="DictState", RolloutTiming="Milliseconds"),
    **_at("responses", ChatCompletion="Response", Completion="Response"),
    **_at("messages", ChatCompletionMessageToolCall="WireToolCall"),
    "AsyncOpenAI": "openai:AsyncOpenAI",
}  # fmt: skip
_IMPORTED = {
    **{name: f"typing:{name}" for name in ("Any", "Awaitable", "Callable", "Literal")},
    "BaseModel": "pydantic:BaseModel", "Path": "pathlib:Path", "TypedDict": "typing_extensions:TypedDict",
    "sys": "sys:",
}  # fmt: skip
"""Names that `types` itself imports: it has no `__all__`, so `from verifiers.types import *` exports them."""
_IMPORTED_C = {
    **{name: f"typing:{name}" for name in ("TYPE_CHECKING", "TypeAlias", "cast")},
    **{name: f"pydantic:{name}" for name in ("ConfigDict", "Field", "computed_field", "field_validator")},
    **{name: f"{name}:" for name in ("json", "time", "uuid")},
    "NotRequired": "typing_extensions:NotRequired", "Mapping": "collections.abc:Mapping", "deepcopy": "copy:deepcopy",
}  # fmt: skip
_TYPES_C = {
    **_at(
        "names", "ClientType", "FinishReason", "ContentPart", "MessageContent", "DatasetBuilder", "StartCallback",
        "ProgressCallback", "LogCallback", "ThinkingBlock", "ResponseTokens",
        TokenUsage="Table", ErrorInfo="Table", Message="ChatMessage", Messages="TypedMessages", VersionInfo="Info",
        EndpointClientConfig="ClientConfig", RedactedThinkingBlock="ThinkingBlock",
        AnthropicThinkingBlock="ThinkingBlock",
    ),
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

_PARSERS = _at("parsers", "Parser", "ThinkParser", "MaybeThinkParser", "XMLParser")
_RUBRICS = {
    **_at("rubric", "Rubric"),
    **_at("rubric_group", "RubricGroup"),
    **_at("judge_rubric", "JudgeRubric"),
    **_at("math_rubric", "MathRubric"),
}
_ENVS = {
    **_at("environment", "Environment"),
    **_at("multi_turn", "MultiTurnEnv", "SingleTurnEnv"),
    **_at("tool_env", "ToolEnv", "StatefulToolEnv"),
    **_at("env_group", "EnvGroup"),
    **_at("sandbox_env", "SandboxEnv"),
    **_at("python_env", "PythonEnv"),
    **_at("mcp_env", "MCPEnv"),
    **_at("text_arena_env", "TextArenaEnv"),
    **_at("reasoning_gym_env", "ReasoningGymEnv"),
    **_at("gym_env", "GymEnv"),
}
_MARKS = _at("marks", "stop", "cleanup", "teardown")
_MARKS_C = _at("marks", "setup", "update", "metric", "reward", "advantage")

_DATA = _at(
    "example_sets", "load_example_dataset", "format_dataset", "strip_non_numeric",
    "BOXED_SYSTEM_PROMPT", "THINK_BOXED_SYSTEM_PROMPT", "extract_boxed_answer", "extract_hash_answer",
)  # fmt: skip
_LOGS = _at("logs", "setup_logging", "print_prompt_completions_sample")
_LOGS_C = _at("logs", "log_level", "quiet_verifiers")
_TOOLBOX = "toolbox"

_CLIENTS = _at(
    "client_classes", "Client", OpenAIChatCompletionsClient="Client", OpenAICompletionsClient="Client",
    OpenAIResponsesClient="Client", AnthropicMessagesClient="Client",
)  # fmt: skip

_TOP = {
    **_ERRORS, **_TYPES, **_PARSERS, **_RUBRICS, **_ENVS, **_MARKS, **_LOGS,
    **_at("example_sets", "extract_boxed_answer", "extract_hash_answer", "load_example_dataset"),
    **_at(_TOOLBOX, "load_environment"),
}  # fmt: skip
_TOP_C = {
    **_ERRORS_C, **_TYPES_C, **_MARKS_C, **_LOGS_C,
    **_at(_TOOLBOX, "ensure_keys", "MissingKeyError", "get_messages"),
    **_CLIENTS,
}  # fmt: skip

_Names = dict[str, str]

_MODULES: dict[str, tuple[_Names, _Names, _Names]] = {
    # Path below `verifiers` → names of both generations, of B only, of C only.
    "": (_TOP, _TYPES_B, _TOP_C),
    "errors": (_ERRORS, {}, _ERRORS_C),
    "types": ({**_TYPES, **_IMPORTED}, _TYPES_B, {**_TYPES_C, **_IMPORTED_C}),
    "decorators": (_MARKS, {}, {**_MARKS_C, **_at("marks", discover_decorated="marked")}),
    "parsers": ({}, {}, {}),
    "parsers.parser": (_at("parsers", "Parser"), {}, {}),
    "parsers.think_parser": (_at("parsers", "ThinkParser"), {}, {}),
    "parsers.maybe_think_parser": (_at("parsers", "MaybeThinkParser"), {}, {}),
    "parsers.xml_parser": (_at("parsers", "XMLParser"), {}, {}),
    "rubrics": ({}, {}, {}),
    "rubrics.rubric": (_at("rubric", "Rubric"), {}, {}),
    "rubrics.rubric_group": (_at("rubric_group", "RubricGroup"), {}, {}),
    "rubrics.judge_rubric": (_at("judge_rubric", "JudgeRubric", "DEFAULT_JUDGE_PROMPT"), {}, {}),
    "rubrics.math_rubric": (_at("math_rubric", "MathRubric"), {}, {}),
    "envs": ({}, {}, {}),
    "envs.environment": (_at("environment", "Environment"), {}, {}),
    "envs.multiturn_env": (_at("multi_turn", "MultiTurnEnv", "MultiTurnMonitorRubric"), {}, {}),
    "envs.singleturn_env": (_at("multi_turn", "SingleTurnEnv"), {}, {}),
    "envs.tool_env": (_at("tool_env", "ToolEnv", "ToolMonitorRubric"), {}, {}),
    "envs.stateful_tool_env": (_at("tool_env", "StatefulToolEnv", "filter_signature"), {}, {}),
    "envs.env_group": (_at("env_group", "EnvGroup", "EnvGroupRubric"), {}, _at("env_group", "ENV_GROUP_INFO_KEY")),
    "envs.sandbox_env": (
        _at(
            "sandbox_env", "SandboxEnv", "SandboxMonitorRubric", "SandboxState", "SandboxCreationError",
            "SandboxNotReadyError",
        ),
        {},
        {},
    ),
    "envs.python_env": (
        _at(
            "python_env", "PythonEnv", "PythonMonitorRubric", "PythonWorkerState", "PythonWorkerNotReadyError",
            "PythonWorkerRequestError", "PythonWorkerDeadError",
        ),
        {},
        {},
    ),
    "envs.integrations": ({}, {}, {}),
    "envs.integrations.textarena_env": (_at("text_arena_env", "TextArenaEnv"), {}, {}),
    "envs.integrations.reasoninggym_env": (_at("reasoning_gym_env", "ReasoningGymEnv"), {}, {}),
    "envs.textarena_env": (_at("text_arena_env", "TextArenaEnv"), {}, {}),
    "envs.reasoninggym_env": (_at("reasoning_gym_env", "ReasoningGymEnv"), {}, {}),
    "envs.experimental": ({}, {}, {}),
    "envs.experimental.gym_env": (_at("gym_env", "GymEnv", "EpisodicSumRubric"), {}, {}),
    "envs.experimental.mcp_env": (_at("mcp_env", "MCPEnv"), {}, {}),
    "clients": ({}, {}, _CLIENTS),
    "clients.client": ({}, {}, _at("client_classes", "Client")),
    "utils": ({}, {}, {}),
    "utils.data_utils": (_DATA, {}, {}),
    "utils.env_utils": (_at(_TOOLBOX, "load_environment"), {}, {}),
    "utils.logging_utils": (_LOGS, {}, _LOGS_C),
    "utils.config_utils": ({}, {}, _at(_TOOLBOX, "ensure_keys", "MissingKeyError")),
    "utils.async_utils": (
        _at(_TOOLBOX, "maybe_await", "maybe_semaphore", "NullAsyncContext"),
        {},
        _at(_TOOLBOX, "maybe_call_with_named_args", NullContext="NullAsyncContext"),
    ),
    "utils.message_utils": (
        _at(_TOOLBOX, "sanitize_tool_calls", "strip_nones_from_content") | _at("messages", concat_messages="concat"),
        {},
        _at(
            _TOOLBOX, "normalize_messages", "from_raw_message", "from_raw_content_part",
            maybe_normalize_messages="normalize_messages",
        ),
    ),
    "utils.response_utils": (
        {},
        _at(_TOOLBOX, "parse_response_messages", "parse_is_truncated"),
        _at(_TOOLBOX, parse_response_message="parse_response_messages"),
    ),
    "utils.tool_utils": (
        {},
        _at(_TOOLBOX, "convert_func_to_oai_tool"),
        _at(
            _TOOLBOX, "convert_func_to_tool_def", "is_valid_tool_content_parts", "VALID_TOOL_CONTENT_PART_TYPES"
        ),
    ),
}  # fmt: skip

PACKAGES = frozenset({"", *(path.rpartition(".")[0] for path in _MODULES if "." in path), "clients", "utils", "envs"})
"""Modules that have submodules."""

_REFUSED: dict[str, str] = {
    name: "it trains models, and there is no training here"
    for name in ("GRPOTrainer", "GRPOConfig", "RLTrainer", "RLConfig", "grpo_defaults", "lora_defaults", "get_model",
                 "get_model_and_tokenizer")
} | {
    name: "it drives agents in the remote sandboxes of one provider, which bench does not"
    for name in ("CliAgentEnv", "HarborEnv", "RLMEnv", "BrowserEnv", "OpenEnvEnv")
} | {
    name: "it belongs to the newer task-set API (verifiers.v1), which is not supported, verifiers installed or not"
    for name in ("Env", "EnvConfig", "Task", "Taskset", "TasksetConfig", "Harness", "HarnessConfig", "Toolset",
                 "ToolsetConfig", "MCPTool", "MCPToolConfig", "SandboxConfig", "User", "UserConfig", "v1")
}  # fmt: skip
"""Names of the real package that are not implemented here, with the reason."""


def exists(path: str, generation: Generation) -> bool:
    """Whether a module exists; `path` is the part after `verifiers.`."""
    if path not in _MODULES:
        return False
    shared, b, c = _MODULES[path]
    return bool(shared or b or c or path in PACKAGES) and (
        bool(shared) or path in PACKAGES or bool(_of(path, generation))
    )


def names(path: str, generation: Generation) -> dict[str, str]:
    """The names of a module, each with its `module:attribute`."""
    return {**_MODULES[path][0], **_of(path, generation)}


def absent(module: str, name: str, generation: Generation) -> str:
    """The error message for a name that a module does not have."""
    path = module.partition(".")[2]
    words = f"module {module!r} has no attribute {name!r}"
    if name in _REFUSED:
        return f"vf.{name} is not offered here: {_REFUSED[name]}"
    other: Generation = "C" if generation == "B" else "B"
    if name in _of(path, other):
        return (
            f"{words} in the classic API of {VERSIONS[generation]}, which the package was taken to be written for; "
            f"it is there in {VERSIONS[other]}: let the package require that"
        )
    near = difflib.get_close_matches(name, names(path, generation), 1)
    return f"{words}; did you mean {near[0]!r}?" if near else words


def _of(path: str, generation: Generation) -> dict[str, str]:
    return _MODULES[path][1 if generation == "B" else 2]
