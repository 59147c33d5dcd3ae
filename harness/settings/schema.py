"""Table of all settings, used by TOML files, command line, `--set` and the reference page. Defines names, types,
defaults and bounds of settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    NonNegativeInt,
    TypeAdapter,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from harness.core.types import JsonDict
from harness.settings import checks

Group: TypeAlias = Literal["env", "model", "save"]
Kind: TypeAlias = Literal["string", "integer", "number", "boolean", "list", "counts", "table", "headers", "duration"]

GROUPS: tuple[Group, ...] = ("env", "model", "save")

BUILTIN_URL = "https://api.pinference.ai/api/v1"
BUILTIN_KEY_VAR = "PRIME_API_KEY"


@dataclass(frozen=True, slots=True)
class CliOption:
    """Names and type of a setting on the command line and in TOML; part of the field's annotation."""

    kind: Kind
    flags: tuple[str, ...] = ()
    """Command-line names that set the value (for a boolean: to true), long name first."""
    off: tuple[str, ...] = ()
    """Command-line names that set a boolean to false."""
    aliases: tuple[str, ...] = ()
    """Further names in the flat TOML form."""
    derived: str = ""
    """Source of the default, if it is not a constant."""
    is_shared: bool = False
    """Whether every command that runs rollouts has the option. Otherwise only `bench run` has it, and the commands that
    list it."""
    ends_rollout: bool = False
    """Whether the setting is a limit that ends a rollout, with its key as stop condition. Part of a run's identity."""


def _rollout_limit(kind: Kind, flag: str) -> CliOption:
    return CliOption(kind, (flag,), is_shared=True, ends_rollout=True)


_CONFIG = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_OptionalAmount = Annotated[_Positive | None, BeforeValidator(checks.none_word)]
_OptionalCount = Annotated[Annotated[int, Field(gt=0, lt=2**63)] | None, BeforeValidator(checks.none_word)]
_Bound = Annotated[int, AfterValidator(checks.at_least_one_or("unlimited"))]
_Table = Annotated[JsonDict, AfterValidator(checks.json_table)]


class EnvSettings(BaseModel):
    """Settings of the environment: what is evaluated, and how often."""

    model_config = _CONFIG

    env_id: Annotated[str, AfterValidator(checks.env_id), CliOption("string", aliases=("id",))]
    """The environment's name (its module is the part after the last `/`, with `-` read as `_`), or the path of its file
    or folder, such as `./my_env.py`."""
    name: Annotated[str, AfterValidator(checks.printable), CliOption("string", ("--name",), derived="env_id")]
    """Name of the run in tables; distinguishes two runs of one environment in a suite."""
    env_args: Annotated[_Table, CliOption("table", ("--env-args", "-a"), aliases=("args",))] = {}
    """Arguments of the environment's `load_environment()`."""
    extra_env_kwargs: Annotated[_Table, CliOption("table", ("--extra-env-kwargs", "-x"))] = {}
    """Values for the loaded environment: calls its method `set_<key>(value)` if there is one, else sets an existing
    attribute."""
    num_examples: Annotated[
        int, AfterValidator(checks.at_least_one_or("all of them")), CliOption("integer", ("--num-examples", "-n"))
    ] = 5
    """Number of examples to evaluate; -1 is all of them."""
    example_ids: Annotated[tuple[str, ...], BeforeValidator(checks.as_ids), CliOption("list", ("--example-ids",))] = ()
    """Evaluate only the examples with these ids; on the command line separated by commas. The default of `num_examples`
    becomes all of them."""
    rollouts_per_example: Annotated[int, Field(ge=1), CliOption("integer", ("--rollouts-per-example", "-r"))] = 3
    """Number of rollouts of each example."""
    until_ci: Annotated[_OptionalAmount, CliOption("number", ("--until-ci",))] = None
    """Stop early when the confidence interval of the mean reward is at most plus or minus this, in units of the reward;
    the interval is valid in spite of early stopping. The defaults become all examples, in random order, once each.
    "none" is no early stopping."""
    gate: Annotated[
        str | None, AfterValidator(checks.run_name), BeforeValidator(checks.none_word), CliOption("string", ("--gate",))
    ] = None
    """Baseline of a sequential gate: a run or suite with the same examples. They are taken in random order, and no
    further one starts once it is decided whether the run is worse than the baseline by more than `margin`. "none" is no
    gate."""
    margin: Annotated[_Amount | None, BeforeValidator(checks.none_word), CliOption("number", ("--margin",))] = None
    """Acceptable loss of mean reward in a sequential `gate`, in units of the reward; 0 or more."""
    shuffle: Annotated[bool, CliOption("boolean", ("--shuffle",), off=("--no-shuffle",))] = False
    """Take the examples from a random permutation of the whole dataset instead of from its start."""
    shuffle_seed: Annotated[NonNegativeInt, CliOption("integer", ("--shuffle-seed",))] = 0
    """Seed of the permutation of `shuffle`."""
    interleave_scoring: Annotated[
        bool, CliOption("boolean", ("--interleave-scoring",), off=("--no-interleave-scoring", "-N"))
    ] = True
    """Score each rollout as soon as it is generated; false scores all of them after the last one is generated."""
    state_columns: Annotated[
        tuple[str, ...],
        BeforeValidator(checks.as_tuple),
        AfterValidator(checks.columns),
        CliOption("list", ("--state-columns", "-C")),
    ] = ()
    """State values to save as columns; on the command line separated by commas."""
    timeout: Annotated[_OptionalAmount, CliOption("number", ("--timeout",))] = None
    """Timeout for generating one rollout, in seconds, without waits for a slot or a retry; "none" is no limit."""
    scoring_timeout: Annotated[_OptionalAmount, CliOption("number", ("--scoring-timeout",))] = 300.0
    """Timeout for scoring one rollout (or one group), in seconds; "none" is no limit."""
    message_limit: Annotated[_OptionalCount, _rollout_limit("integer", "--message-limit")] = None
    """Model calls that one attempt at a rollout may make; a further call is not sent, and the rollout ends with stop
    condition `message_limit` and is scored. "none" is no limit."""
    token_limit: Annotated[_OptionalCount, _rollout_limit("integer", "--token-limit")] = None
    """Tokens, in and out, that one attempt at a rollout may use; `max_tokens` of each request is cut to what is left,
    and the rollout ends with stop condition `token_limit` and is scored. "none" is no limit."""
    cost_limit: Annotated[_OptionalAmount, _rollout_limit("number", "--cost-limit")] = None
    """US dollars that the model calls of one attempt at a rollout may cost; a further call is not sent, and the rollout
    ends with stop condition `cost_limit` and is scored. "none" is no limit."""
    max_retries: Annotated[NonNegativeInt, CliOption("integer", ("--max-retries",))] = 0
    """Maximum number of retries of a rollout that failed for a temporary reason."""
    max_failures: Annotated[
        NonNegativeInt | None,
        BeforeValidator(checks.none_word),
        CliOption("integer", ("--max-failures",), is_shared=True),
    ] = None
    """Stop the run when more than this many rollouts of it have failed for good or could not be scored; 0 stops at the
    first. Rollouts in flight are finished, and a resume makes the rest. "none" is no limit."""
    pass_threshold: Annotated[FiniteFloat, CliOption("number", ("--pass-threshold",))] = 1.0
    """Reward from which a rollout counts as passed in pass@k and pass^k."""
    pass_k: Annotated[
        tuple[int, ...],
        BeforeValidator(checks.as_counts),
        AfterValidator(checks.attempts),
        CliOption("counts", ("--k",)),
    ] = ()
    """Numbers of attempts k for which pass@k and pass^k are computed, such as `1,3,5`; none means 1, 2, 4, … up to
    `rollouts_per_example`."""
    cluster_key: Annotated[
        Annotated[str, AfterValidator(checks.printable)] | None,
        BeforeValidator(checks.no_clusters),
        CliOption("string", ("--cluster-key",), derived="environment"),
    ] = None
    """Key of the examples' `info`, or `task`: examples with the same value resemble each other, and all intervals and
    tests allow for it. "none" means that examples are independent."""
    isolate: Annotated[bool, CliOption("boolean", ("--isolate",), off=("--no-isolate",))] = False
    """Run the environment in processes of its own: its faults do not affect other runs, and it sees no API key."""
    workers: Annotated[
        Annotated[int, Field(ge=-1)], BeforeValidator(checks.auto_word), CliOption("integer", ("--workers",))
    ] = 0
    """Number of processes of the environment, to use several cores; "auto" (-1) is one a core, and with the executor
    `ray` one for each CPU of the nodes; 0 is this process, or one process with `isolate`."""
    executor: Annotated[str | None, BeforeValidator(checks.none_word), CliOption("string", ("--executor",))] = None
    """Name of the installed plugin that executes the rollouts (entry-point group `bench.executors`); "none" executes
    them in this process, or with `isolate` in processes of the environment's own."""
    executor_args: Annotated[_Table, CliOption("table", ("--executor-args",))] = {}
    """Settings of the executor; for `ray`: `address` of the cluster (empty starts one on this computer), `worker_cpus`,
    and `runtime_env`, a JSON or TOML file."""
    worker_memory_mb: Annotated[_Bound, CliOption("integer", ("--worker-memory-mb",))] = 4096
    """Memory limit of each process of the environment, in MiB; -1 is no limit."""
    worker_vars: Annotated[
        tuple[str, ...],
        BeforeValidator(checks.as_tuple),
        AfterValidator(checks.variables),
        CliOption("list", ("--worker-vars",)),
    ] = ()
    """Environment variables that the environment's processes get although their names look like names of keys; on the
    command line separated by commas."""

    @property
    def is_isolated(self) -> bool:
        """Whether the environment runs in separate processes."""
        return self.isolate or self.workers != 0


class ModelSettings(BaseModel):
    """Settings of the model: name, endpoint, limits."""

    model_config = _CONFIG

    model: Annotated[
        str, AfterValidator(checks.printable), CliOption("string", ("--model", "-m"), aliases=("endpoint_id",))
    ] = "openai/gpt-4.1-mini"
    """The model's name at its endpoint, an alias of the endpoint registry, or `reference/…`."""
    api_base_url: Annotated[
        str, AfterValidator(checks.url), CliOption("string", ("--api-base-url", "-b"), aliases=("url",))
    ] = BUILTIN_URL
    """Base URL of an OpenAI-compatible endpoint, or `litellm://<provider>`; the process itself answers for a
    `reference/…` model without one."""
    api_key_var: Annotated[
        str, AfterValidator(checks.variable), CliOption("string", ("--api-key-var", "-k"), aliases=("key",))
    ] = BUILTIN_KEY_VAR
    """Environment variable that holds the key; "" sends none. The default is sent to the default host only."""
    extra_headers: Annotated[
        dict[str, str], AfterValidator(checks.header_table), CliOption("headers", ("--header",), aliases=("headers",))
    ] = {}
    """Further HTTP headers; on the command line `--header 'Name: Value'`, repeatable."""
    sampling_args: Annotated[_Table, CliOption("table", ("--sampling-args", "-S"), aliases=("sampling",))] = {}
    """Arguments merged into every request body, such as `temperature` or `max_tokens`."""
    max_concurrent: Annotated[_Bound, CliOption("integer", ("--max-concurrent", "-c"))] = 32
    """Maximum number of rollouts in flight; -1 is unlimited."""
    max_concurrent_generation: Annotated[
        _Bound, CliOption("integer", ("--max-concurrent-generation",), derived="max_concurrent")
    ] = 32
    """Maximum number of rollouts generated concurrently; -1 is unlimited."""
    max_concurrent_scoring: Annotated[
        _Bound, CliOption("integer", ("--max-concurrent-scoring",), derived="max_concurrent")
    ] = 32
    """Maximum number of rollouts scored concurrently; -1 is unlimited."""
    rpm: Annotated[_OptionalCount, CliOption("integer", ("--rpm",))] = None
    """Limit of requests per minute to the endpoint; "none" is no limit."""
    tpm: Annotated[_OptionalCount, CliOption("integer", ("--tpm",))] = None
    """Limit of tokens per minute to the endpoint; "none" is no limit."""
    request_timeout: Annotated[_Positive, CliOption("number", ("--request-timeout",))] = 600.0
    """Timeout of one request, in seconds."""
    request_retries: Annotated[NonNegativeInt, CliOption("integer", ("--request-retries",))] = 6
    """Maximum number of retries of a request that failed for a temporary reason."""


class SaveSettings(BaseModel):
    """Settings of results: storage and publication."""

    model_config = _CONFIG

    save_results: Annotated[bool, CliOption("boolean", ("--save-results", "-s"), off=("--no-save",))] = True
    """Keep the run folder with its dataset; false removes it when the run has ended."""
    save_every: Annotated[
        int, AfterValidator(checks.at_least_one_or("only at the end")), CliOption("integer", ("--save-every", "-f"))
    ] = 100
    """Number of new rollouts after which the dataset is written again; -1 writes it only at the end."""
    save_to_hf_hub: Annotated[bool, CliOption("boolean", ("--save-to-hf-hub", "-H"))] = False
    """Push the run's dataset to the Hugging Face Hub when it has ended."""
    hf_hub_dataset_name: Annotated[
        str | None,
        AfterValidator(checks.repository),
        CliOption("string", ("--hf-hub-dataset-name", "-D"), derived="env_id and model"),
    ] = None
    """Hub repository to push to."""
    hf_public: Annotated[bool, CliOption("boolean", ("--hf-public",))] = False
    """Create the Hub repository as a public one."""
    output_dir: Annotated[str, AfterValidator(checks.printable), CliOption("string", ("--output-dir", "-o"))] = (
        "outputs"
    )
    """Output folder of results, relative to the working directory."""
    private: Annotated[bool, CliOption("boolean", ("--private",))] = False
    """Make folders and files of results readable by their owner only (modes 0700 and 0600)."""


class RunSettings(BaseModel):
    """All settings of one run: one environment, one model."""

    model_config = _CONFIG

    env: EnvSettings
    model: ModelSettings
    save: SaveSettings


_MODELS: Mapping[Group, type[BaseModel]] = {"env": EnvSettings, "model": ModelSettings, "save": SaveSettings}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting: its key, command-line option, default and documentation."""

    group: Group
    key: str
    door: CliOption
    default: object
    """The default; None if the setting has no default, or one that is derived from other settings."""
    doc: str

    @property
    def path(self) -> tuple[str, str]:
        """Group and key of the setting."""
        return (self.group, self.key)

    @property
    def dotted(self) -> str:
        """Dotted path, as in `--set` and `--dry-run`."""
        return f"{self.group}.{self.key}"

    @property
    def flag(self) -> str:
        """The command-line flag to show in messages: the short one if it exists."""
        return self.door.flags[-1] if self.door.flags else ""

    @property
    def off_flag(self) -> str:
        """Flag that sets a boolean to false, for messages."""
        return self.door.off[-1] if self.door.off else ""

    @property
    def is_table(self) -> bool:
        """Whether layers merge the value key by key instead of replacing it."""
        return self.door.kind in ("table", "headers")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A flag that is not a setting itself: it changes part of a setting, or applies to the whole invocation."""

    key: str
    kind: Kind
    flags: tuple[str, ...]
    path: tuple[str, ...]
    """Path of the setting, or of the table key, that the flag sets; empty if it applies to the whole invocation."""
    doc: str
    is_shared: bool = False
    """Whether every command that runs rollouts has the flag."""

    @property
    def flag(self) -> str:
        """The flag to show in messages."""
        return self.flags[-1]


def _setting(group: Group, key: str, field: FieldInfo) -> Setting:
    door = next(item for item in field.metadata if isinstance(item, CliOption))
    known = None if field.default is PydanticUndefined or door.derived else field.default
    return Setting(group, key, door, known, (field.description or "").replace("\n", " "))


SETTINGS: tuple[Setting, ...] = tuple(
    _setting(group, key, field) for group, model in _MODELS.items() for key, field in model.model_fields.items()
)
"""All settings, in the order of the reference page."""

SHORTCUTS: tuple[Shortcut, ...] = (
    Shortcut("max_tokens", "integer", ("--max-tokens", "-t"), ("model", "sampling_args", "max_tokens"),
             "Tokens to generate at most: `max_tokens` in `sampling_args`; `-S` wins."),
    Shortcut("temperature", "number", ("--temperature", "-T"), ("model", "sampling_args", "temperature"),
             "Sampling temperature: `temperature` in `sampling_args`; `-S` wins."),
    Shortcut("env_dir_path", "string", ("--env-dir-path", "-p"), ("save", "output_dir"),
             "Write to `DIR/<module>/outputs` where `DIR/<module>` exists; `-o` wins."),
    Shortcut("endpoints_path", "string", ("--endpoints-path", "-e"), (),
             "Endpoint registry: a .toml or .py file, or a folder that holds endpoints.toml or endpoints.py."),
    Shortcut("ray_address", "string", ("--ray-address",), ("env", "executor_args", "address"),
             "Ray cluster of `--executor ray`: `address` in `executor_args`."),
    Shortcut("worker_cpus", "number", ("--worker-cpus",), ("env", "executor_args", "worker_cpus"),
             "CPUs that each process of `--executor ray` reserves: `worker_cpus` in `executor_args`."),
    Shortcut("ray_runtime_env", "string", ("--ray-runtime-env",), ("env", "executor_args", "runtime_env"),
             "File with Ray's runtime environment: `runtime_env` in `executor_args`."),
    Shortcut("max_cost", "number", ("--max-cost",), (),
             "US dollars that the whole invocation may spend, judges included; then no request is sent.",
             is_shared=True),
    Shortcut("max_tokens_total", "integer", ("--max-tokens-total",), (),
             "Tokens, in and out, that the whole invocation may use, judges included; then no request is sent.",
             is_shared=True),
    Shortcut("max_time", "duration", ("--max-time",), (),
             "Time that the invocation may take, such as 90s, 30m or 1h30m: then nothing new begins.",
             is_shared=True),
)  # fmt: skip

BY_PATH: Mapping[tuple[str, str], Setting] = {setting.path: setting for setting in SETTINGS}
BY_FLAT_NAME: Mapping[str, Setting] = {
    name: setting for setting in SETTINGS for name in (setting.key, *setting.door.aliases)
}
"""Settings by key and alias in the flat form; keys are unique over all groups."""
SHORTCUT_BY_KEY: Mapping[str, Shortcut] = {shortcut.key: shortcut for shortcut in SHORTCUTS}
SHARED: tuple[str, ...] = (
    *(setting.key for setting in SETTINGS if setting.door.is_shared),
    *(shortcut.key for shortcut in SHORTCUTS if shortcut.is_shared),
)
"""Keys of the options of every command that runs rollouts."""
ROLLOUT_LIMITS: tuple[str, ...] = tuple(setting.key for setting in SETTINGS if setting.door.ends_rollout)
"""Keys of the limits that end a rollout. Each is a setting of `env` and the rollout's stop condition."""


def keys_of(group: str) -> tuple[str, ...]:
    """Keys of one group, in order."""
    return tuple(setting.key for setting in SETTINGS if setting.group == group)


@cache
def adapter(path: tuple[str, str]) -> TypeAdapter[Any]:
    """Validator of the setting at `path`, which also converts the value."""
    field = _MODELS[BY_PATH[path].group].model_fields[path[1]]
    annotation: Any = field.annotation
    for item in field.metadata:
        annotation = Annotated[annotation, item]
    return TypeAdapter(annotation, config=ConfigDict(strict=True))
