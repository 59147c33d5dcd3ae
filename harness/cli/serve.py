"""Implement `bench serve`: run the reference server until a signal, as a load target or as an endpoint for any client.
Texts about faults are in `serve_faults`, the server is in `harness.reference`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from harness.cli.serve_faults import (
    FailRate,
    FailStatus,
    FaultFile,
    FaultSpecs,
    HangRate,
    Latency,
    ListFaults,
    MalformedRate,
    ResetRate,
    RetryAfter,
    Seed,
    Sigma,
    catalogue,
    report,
    statuses,
)
from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback
from harness.reference.faults import Faults, FaultScript
from harness.reference.player import EnvironmentPlayer, Player
from harness.reference.policies import PREFIX, parse_model
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer

if TYPE_CHECKING:
    from harness.core.types import JsonDict


def serve(  # noqa: PLR0913 - a command's options are its parameters
    env: Annotated[
        str | None, typer.Option("--env", help="Environments whose reference policies answer (comma-separated).")
    ] = None,
    env_args: Annotated[
        str | None, typer.Option("--env-args", "-a", help="JSON object for load_environment() of each.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            help="How model names outside reference/ are answered: oracle, noisy?accuracy=P&seed=N, null, echo. "
            "By default a fixed text of about 200 tokens."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; loopback unless you say otherwise.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8000,
    faults: FaultFile = None,
    fault: FaultSpecs = None,
    list_faults: ListFaults = False,
    latency: Latency = None,
    sigma: Sigma = None,
    fail_rate: FailRate = 0.0,
    fail_status: FailStatus = "500",
    retry_after: RetryAfter = None,
    reset_rate: ResetRate = 0.0,
    hang_rate: HangRate = 0.0,
    malformed_rate: MalformedRate = 0.0,
    seed: Seed = None,
) -> None:
    """Serve the reference models, or a load target, over the OpenAI API on this machine.

    The first line on stdout is the base URL; SIGINT or SIGTERM ends it and tells what was served. GET /stats counts
    requests, GET /faults says which met which fault.
    """
    if list_faults:
        sys.stdout.write(catalogue())
        return
    rates = Faults(
        (latency or 0.0) / 1000.0, sigma or 0.0, fail_rate, statuses(fail_status), retry_after, reset_rate, hang_rate,
        malformed_rate,
    )  # fmt: skip
    script = fault_script(
        *(fault or ()), file=faults, seed=seed, latency=None if latency is None else rates.latency, sigma=sigma,
        more=rates.rules(),
    )  # fmt: skip
    _run(*_server(script, env, env_args, policy, host, port))


def _server(
    script: FaultScript, env: str | None, env_args: str | None, policy: str | None, host: str, port: int
) -> tuple[ReferenceServer, str]:
    """Build the server, and a command that uses it."""
    chosen = parse_model(policy if policy.startswith(PREFIX) else PREFIX + policy) if policy else None
    players = _load_players(env, env_args)
    if chosen is not None and chosen.needs_player and not players:
        raise ConfigError(f"--policy {policy} needs an environment to know the answers: add --env ENV_ID")
    server = ReferenceServer(faults=script, host=host, port=port, policy=chosen)
    for lane, player in players.items():
        server.add(lane, player)
    if not is_loopback(host):
        _say(f"warning: {host} is not loopback: whoever reaches this machine can use the server")
    run = shlex.join(["bench", "run", ",".join(players) or "gsm8k", *(["-a", env_args] if env_args else [])])
    return server, f"{run} -m {PREFIX}oracle" if players else f"{run} -m any-name"


def _load_players(env: str | None, env_args: str | None) -> dict[str, Player]:
    args = _json_object(env_args)
    names = [name.strip() for name in (env or "").split(",") if name.strip()]
    if env is not None and not names:
        raise ConfigError("--env is empty; give environment ids, as in --env gsm8k,wordle")
    if args and not names:
        raise ConfigError("-a/--env-args has no effect without --env")
    if not names:
        return {}
    from harness.engine.loader import load_environment

    players: dict[str, Player] = {}
    # Output of an environment must not precede the URL, which is the first line on stdout.
    with contextlib.redirect_stdout(sys.stderr):
        for name in names:
            environment = load_environment(name, **args)
            if not environment.has_reference:
                _say(f"warning: {name} has no reference policy: {PREFIX}oracle and {PREFIX}noisy cannot play it")
            player = EnvironmentPlayer(environment)
            player.learn_all()
            players[name] = player
    return players


def _run(server: ReferenceServer, command: str) -> None:
    import uvloop

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        url = await server.start()
        try:
            sys.stdout.write(f"{url}\n")
            sys.stdout.flush()
            _say(_examples(url, command))
            await stop.wait()
        finally:
            await server.stop()
            _say(report(server))

    uvloop.run(main())


def _examples(url: str, command: str) -> str:
    body = json.dumps({"model": f"{PREFIX}echo", "messages": [{"role": "user", "content": "hello"}]})
    return (
        "try:\n"
        f"  curl -s {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
        f"  {command} -b {url}\n"
        "Ctrl-C ends the server and tells what was served."
    )


def _json_object(text: str | None) -> JsonDict:
    if text is None:
        return {}
    try:
        value: object = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"-a/--env-args is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError('-a/--env-args must be a JSON object, as in -a \'{"split": "sample"}\'')
    return cast("JsonDict", value)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
