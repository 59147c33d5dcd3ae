"""Judge models of a run: their endpoints, the properties that are part of the run's identity, and the panel through
which reward functions call them. Decides whether the embedded reference server replaces a judge. Rubrics write the
prompts, and clients send the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from harness.core.errors import ConfigError, EnvironmentFault
from harness.core.keys import digest
from harness.core.loopback import is_loopback_url
from harness.core.records import Example
from harness.core.state import State
from harness.core.types import Chat, JsonDict, ModelResponse, Prompt, Sampling, Tools
from harness.engine.model_source import Connection, CountingPlayer
from harness.engine.spending import SpendTracker
from harness.envs.environment import Environment
from harness.models.delays import Delay
from harness.models.pool import CallSettings, ClientPool
from harness.models.wire import check_sampling_args
from harness.reference.policies import parse_model
from harness.reference.server import ReferenceServer
from harness.rubrics.judge_port import JudgeSpec
from harness.settings.endpoint_selection import KEY, MODEL, URL, Layers, is_reference, serve
from harness.settings.endpoints import Endpoint, Registry
from harness.settings.layers import KeyPath, Layer, LayerValue, Origin
from harness.settings.providers import refuse_default_host, require_provider
from harness.settings.resolver import ResolvedRun
from harness.settings.sections import builtins
from harness.usercode.deadline import waiting

if TYPE_CHECKING:
    from harness.engine.prepare import RunPlan

REFERENCE_JUDGE = "reference/judge"

_NAMING = frozenset({"judge_model", "judge_base_url"})
"""Environment arguments that always name a judge."""

_REMEDY = (
    "set the judge's URL (judge_base_url, if the environment has this argument), or add the judge to the endpoint "
    "registry with its name as endpoint_id and its URL as url"
)

_DEFAULT_REMEDY = (
    "set OPENAI_BASE_URL, or add the judge to the endpoint registry with its name as endpoint_id and its URL as url"
)

_clients = count(1)


@dataclass(frozen=True, slots=True)
class JudgeBinding:
    """One judge of a run, with its endpoints and settings resolved before the first call."""

    name: str
    """Name of the judge in the run: `judge` for the first, then `judge_2` and so on."""
    spec: JudgeSpec
    endpoints: tuple[Endpoint, ...]
    alias: str | None = None
    stands_in: bool = False
    """Whether the embedded reference server replaces the judge that the environment would call."""

    @property
    def is_embedded(self) -> bool:
        """Whether the embedded reference server answers as the judge."""
        return not self.endpoints[0].url

    @property
    def model(self) -> str:
        """The judge's name at its endpoint."""
        return self.endpoints[0].model

    def identity(self) -> JsonDict:
        """The properties of the judge that change scores, for the run's identity."""
        return {
            "model": sorted({endpoint.model for endpoint in self.endpoints}),
            "urls": sorted({endpoint.url.rstrip("/") for endpoint in self.endpoints if endpoint.url}),
            "sampling_args": dict(self.spec.sampling_args),
            "prompt": digest(self.spec.prompt)[:16],
        }


def judges_of(resolved: ResolvedRun, environment: Environment, environ: Mapping[str, str]) -> tuple[JudgeBinding, ...]:
    """Resolve and validate the judges of a run. Sends nothing.

    Args:
        resolved: The run's settings.
        environment: The environment, whose rubric names the judges.
        environ: Environment variables, for keys.

    Raises:
        ConfigError: an environment variable with a key is not set, a sampling argument is not supported, or the
            embedded server is to judge but the environment does not define `reference_verdict`.
    """
    specs = environment.rubric.judges
    names = ["judge", *(f"judge_{number}" for number in range(2, len(specs) + 1))]
    bindings = tuple(_bind(name, spec, resolved, environment) for name, spec in zip(names, specs, strict=False))
    for binding in bindings:
        _check(binding, resolved, environment, environ)
    return bindings


def identity_with(identity: JsonDict, bindings: Sequence[JudgeBinding]) -> JsonDict:
    """Add the judges to a run's identity, since one journal must not mix scores of different judges."""
    return {**identity, "judges": {binding.name: binding.identity() for binding in bindings}} if bindings else identity


def embedded_judge_note(bindings: Sequence[JudgeBinding]) -> str:
    """Return the notice that the embedded reference server replaces the environment's judge; "" if it does not."""
    replaced = list(dict.fromkeys(binding.spec.model for binding in bindings if binding.stands_in))
    if not replaced:
        return ""
    return (
        f"{REFERENCE_JUDGE} judges in place of {' and '.join(replaced)}, as the model is a reference model, too; to "
        "ask a real judge, name it (judge_model)"
    )


def _bind(name: str, spec: JudgeSpec, resolved: ResolvedRun, environment: Environment) -> JudgeBinding:
    if resolved.is_reference and not is_reference(spec.model) and not _is_named(spec, resolved):
        if environment.has_reference_verdict:
            return JudgeBinding(name, spec, (Endpoint("", None, REFERENCE_JUDGE),), stands_in=True)
        raise ConfigError(
            f"{resolved.env_id} has no reference judge (reference_verdict), and its real judge {spec.model} would cost "
            f"money even for the answers of {resolved.settings.model.model}.",
            remedy="To use the real judge nevertheless, name it explicitly: {env_args} judge_model={model}",
            model=spec.model,
        )
    # A judge with its own URL is a separate endpoint: the registry entry of that name does not apply.
    asked: dict[KeyPath, LayerValue] = {}
    is_listed = not spec.base_url and spec.model in resolved.registry.entries
    default = None if spec.base_url or is_listed else spec.default_url
    key_var = f"the client of {spec.model} (number {next(_clients)})" if spec.key else spec.api_key_var
    for path, value in ((MODEL, spec.model), (URL, spec.base_url), (KEY, key_var)):
        if value is not None and not (path == KEY and spec.default_url and is_listed):
            asked[path] = LayerValue(path, value, Origin("eval", "the rubric's judge"))
    if default:
        asked[URL] = LayerValue(URL, default, Origin("builtin", "the rubric's default"))
    layer: Layer = asked
    served = serve(Layers(builtins(), {}, {}, {}, layer, {}), resolved.registry if not spec.base_url else Registry())
    who = f"{spec.model}, the judge of {resolved.settings.env.name},"
    key = replace(served.merged[KEY], value=None) if default else served.merged[KEY]  # use the key of the default host
    refuse_default_host(who, served.merged[URL], key, resolved.named, _DEFAULT_REMEDY if default else _REMEDY)
    own = {"key": spec.key or ""}
    endpoints = tuple(replace(each, headers={**each.headers, **spec.headers}, **own) for each in served.endpoints)
    return JudgeBinding(name, spec, endpoints, served.alias)


def _is_named(spec: JudgeSpec, resolved: ResolvedRun) -> bool:
    """Return whether the caller chose this judge: with a judge argument, or any argument set to its model or URL."""
    tables = ("env.env_args.", "env.extra_env_kwargs.")
    for path, line in resolved.described().items():
        if not path.startswith(tables) or line["origin"] == "package" or line["value"] is None:
            continue
        if path.rpartition(".")[2] in _NAMING or line["value"] in (spec.model, spec.base_url):
            return True
    return False


def _check(binding: JudgeBinding, resolved: ResolvedRun, environment: Environment, environ: Mapping[str, str]) -> None:
    """Validate the sampling arguments of a judge, its API key and, if it is a reference model, its policy."""
    check_sampling_args(binding.spec.sampling_args)
    policy = parse_model(binding.model).name if is_reference(binding.model) or binding.is_embedded else None
    if is_reference(binding.model) and policy != "judge":
        raise ConfigError(
            f"{resolved.env_id}: judge_model is {binding.model}, but {policy} cannot judge; set judge_model to "
            f"{REFERENCE_JUDGE} or to a real model"
        )
    if binding.is_embedded and policy == "judge" and not environment.has_reference_verdict:
        raise ConfigError(
            f"{resolved.env_id} has no reference judge, so {binding.model} cannot judge its rollouts; implement "
            "reference_verdict in the environment, or set another judge_model"
        )
    for endpoint in binding.endpoints:
        name = endpoint.key_var
        if name and not binding.spec.key and not is_loopback_url(endpoint.url) and not environ.get(name, "").strip():
            raise ConfigError(
                f"{name} is not set, and {binding.spec.model}, the judge of {resolved.settings.env.name}, needs it at "
                f"{endpoint.url}.",
                remedy="Export it or put it in .env, name another judge (judge_model, judge_base_url, "
                "judge_api_key_var), or try `{model} reference/oracle`, which is judged without a key",
            )


class RunPanel:
    """The connected judges of one run; implements `rubrics.judge_port.Panel`.

    Args:
        lane: Name of the run, unique in the process.
        plan: The plan of the run.
        pool: Source of clients.
        server: The embedded reference server, for judges that it replaces.
        tracker: Tracker of the run's spending.
    """

    def __init__(
        self, lane: str, plan: RunPlan, pool: ClientPool, server: ReferenceServer | None, tracker: SpendTracker
    ) -> None:
        lane = f"{lane}:judge"
        self._rollouts = plan.rollouts
        self._player = CountingPlayer(plan.environment)
        if server is not None and any(binding.is_embedded for binding in plan.judges):
            server.add(lane, self._player)
        self._lane, self._pool, self._server, self._tracker = lane, pool, server, tracker
        self._model = plan.resolved.settings.model
        self._judges: dict[int, _Connected] = {}
        for binding in plan.judges:
            self._connect(binding)

    def _connect(self, binding: JudgeBinding) -> _Connected:
        model, bound = self._model, binding.spec.max_concurrent
        settings = CallSettings(
            max_in_flight=model.max_concurrent_generation if bound is None else bound,
            request_timeout=model.request_timeout,
            request_retries=model.request_retries,
        )
        connection = Connection(self._lane, binding.endpoints, settings, self._pool, self._server, self._tracker)
        gate = None if bound is None else asyncio.Semaphore(bound)
        connected = self._judges[id(binding.spec)] = _Connected(binding, connection, gate)
        return connected

    def chat(self, spec: JudgeSpec, state: Mapping[str, Any] | None) -> Chat:
        """Return the chat of judge `spec` for the rollout of `state`."""
        judge = self._judges.get(id(spec))
        if judge is None and spec.is_undeclared:
            key_var = f"the key of {spec.model} (number {next(_clients)})" if spec.key else spec.api_key_var
            endpoint = Endpoint(spec.base_url or "", key_var, spec.model, key=spec.key or "")
            require_provider(endpoint.url)
            judge = self._connect(JudgeBinding("judge", spec, (endpoint,)))
        if judge is None:
            raise EnvironmentFault(f"the judge {spec.model!r} was not among the rubric's judges when the run began")
        example = state.example if isinstance(state, State) else None
        if judge.binding.is_embedded and example is None:
            raise EnvironmentFault(
                f"the judge {judge.binding.model} needs the rollout that it judges: pass state to judge(…)"
            )
        item = None
        if example is not None and judge.connection.is_local:
            item = self._rollouts.item(example, cast("State", state)["rollout_index"])
        player = self._player if judge.binding.is_embedded else None
        return _LimitedChat(judge.connection.chat(item, spec.sampling_args, urgent=True), judge.gate, player, example)

    def delays(self) -> list[Delay]:
        """Reasons why judge requests are delayed, each once; empty if they are not."""
        found = [delay for judge in self._judges.values() for delay in judge.connection.delays()]
        return [replace(delay, reason=f"judge: {reason}") for reason, delay in {d.reason: d for d in found}.items()]


@dataclass(frozen=True, slots=True)
class _Connected:
    binding: JudgeBinding
    connection: Connection
    gate: asyncio.Semaphore | None


@dataclass(frozen=True, slots=True)
class _LimitedChat:
    """Chat with a judge that limits how many of its calls run at the same time."""

    inner: Chat
    gate: asyncio.Semaphore | None
    player: CountingPlayer | None
    example: Example | None

    @property
    def model(self) -> str:
        """The judge's name at its endpoint."""
        return self.inner.model

    async def __call__(self, prompt: Prompt, *, tools: Tools = None, sampling_args: Sampling = None) -> ModelResponse:
        """Call the judge. Time spent waiting for the concurrency limit does not count toward the rollout's timeout."""
        with ExitStack() as stack:
            if self.gate is not None:
                with waiting():
                    await self.gate.acquire()
                stack.callback(self.gate.release)
            if self.player is not None and self.example is not None:
                self.player.learn(self.example)
                stack.callback(self.player.forget, self.example.key)
            return await self.inner(prompt, tools=tools, sampling_args=sampling_args)
