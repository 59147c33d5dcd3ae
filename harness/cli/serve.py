"""`bench serve`: the reference server on its own, as a load target or as an endpoint for any client. Owns the command's
options and its life until a signal; what is served is `harness.reference`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import signal
import sys
from typing import TYPE_CHECKING, Annotated, cast

import typer

from harness.errors import ConfigError
from harness.loopback import is_loopback
from harness.reference.faults import Faults
from harness.reference.player import EnvironmentPlayer, Player
from harness.reference.policies import PREFIX, parse_model
from harness.reference.server import ReferenceServer

if TYPE_CHECKING:
    from harness.types import JsonDict


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
    latency: Annotated[float, typer.Option(help="Median latency, milliseconds.")] = 0.0,
    sigma: Annotated[float, typer.Option(help="Spread of the latency (of its logarithm).")] = 0.0,
    fail_rate: Annotated[float, typer.Option(help="Share of requests that get --fail-status.")] = 0.0,
    fail_status: Annotated[str, typer.Option(help="HTTP errors to draw from, e.g. 429,500.")] = "500",
    retry_after: Annotated[
        str | None, typer.Option(help="Retry-After header of those errors: seconds or an HTTP-date.")
    ] = None,
    reset_rate: Annotated[float, typer.Option(help="Share of requests whose connection is reset.")] = 0.0,
    hang_rate: Annotated[float, typer.Option(help="Share of requests that are never answered.")] = 0.0,
    malformed_rate: Annotated[float, typer.Option(help="Share of requests answered with an unreadable body.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of latency and faults.")] = 0,
) -> None:
    """Serve the reference models, or a load target, over the OpenAI API on this machine.

    The first line on stdout is the base URL; SIGINT or SIGTERM ends it. GET /stats counts requests.
    """
    faults = Faults(
        latency / 1000.0, sigma, fail_rate, _statuses(fail_status), retry_after, reset_rate, hang_rate, malformed_rate,
        seed,
    )  # fmt: skip
    chosen = parse_model(policy if policy.startswith(PREFIX) else PREFIX + policy) if policy else None
    players = _load_players(env, env_args)
    if chosen is not None and chosen.needs_player and not players:
        raise ConfigError(f"--policy {policy} needs an environment to know the answers: add --env ENV_ID")
    server = ReferenceServer(faults=faults, host=host, port=port, policy=chosen)
    for lane, player in players.items():
        server.add(lane, player)
    if not is_loopback(host):
        _say(f"warning: {host} is not loopback: whoever reaches this machine can use the server")
    run = shlex.join(["bench", "run", ",".join(players) or "gsm8k", *(["-a", env_args] if env_args else [])])
    _run(server, f"{run} -m {PREFIX}oracle" if players else f"{run} -m any-name")


def _load_players(env: str | None, env_args: str | None) -> dict[str, Player]:
    args = _json_object(env_args)
    names = [name.strip() for name in (env or "").split(",") if name.strip()]
    if env is not None and not names:
        raise ConfigError("--env is empty; give environment ids, as in --env gsm8k,wordle")
    if args and not names:
        raise ConfigError("-a/--env-args has no effect without --env")
    if not names:
        return {}
    from harness.loader import load_environment

    players: dict[str, Player] = {}
    # What an environment prints must not stand before the URL, which is the first line for whoever reads stdout.
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

    uvloop.run(main())


def _examples(url: str, command: str) -> str:
    body = json.dumps({"model": f"{PREFIX}echo", "messages": [{"role": "user", "content": "hello"}]})
    return (
        "try:\n"
        f"  curl -s {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
        f"  {command} -b {url}\n"
        "Ctrl-C ends the server."
    )


def _statuses(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ConfigError(f"--fail-status {text!r}: give HTTP statuses, as in 429,500") from None


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
