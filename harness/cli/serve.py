"""Implement `bench serve`: run the reference server until a signal, as a load target or as an endpoint for any client.
Options for faults come from plugins of the group `bench.fault_sources`."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from harness.cli.completion import policies
from harness.cli.grouped import flag
from harness.cli.lazy_commands import add_plugin_options
from harness.cli.output import ENV_ARGS_HELP, env_args
from harness.core.errors import ConfigError
from harness.core.loopback import is_loopback
from harness.reference.fault_sources import FAULT_SOURCES, FaultSource
from harness.reference.player import EnvironmentPlayer
from harness.reference.policies import PREFIX, parse_model
from harness.reference.server import ReferenceServer
from harness.usercode.event_loop import stop_signals

if TYPE_CHECKING:
    from harness.core.types import JsonDict


def serve(
    env: str | None = flag("--env ID,ID…", "Environments whose reference policies answer (comma-separated)."),
    args: list[str] | None = flag("--env-args -a JSON|KEY=VALUE", ENV_ARGS_HELP),
    policy: str | None = flag(
        "--policy POLICY",
        "How model names outside reference/ are answered: oracle, noisy?accuracy=P&seed=N, null, echo. By default a "
        "fixed text of about 200 tokens.",
        choices=policies,
    ),
    host: str = flag("--host HOST", "Address to listen on. [127.0.0.1]", "127.0.0.1"),
    port: int = flag("--port N", "0 picks a free port.", 8000, min=0, max=65535),
    **fault_options: Any,
) -> None:
    """Serve the reference models, or a load target, over the OpenAI API on this machine.

    The first line on stdout is the base URL; SIGINT or SIGTERM stops the server and prints the counts. GET /stats
    counts requests; GET /faults lists the requests that met each fault.
    """
    _run(*_server(_fault_source(fault_options), env, args or [], policy, host, port))


_fault_source = add_plugin_options(serve, FAULT_SOURCES)


def _server(
    faults: FaultSource | None, env: str | None, args: Sequence[str], policy: str | None, host: str, port: int
) -> tuple[ReferenceServer, str]:
    """Build the server, and an example command that uses it."""
    chosen = parse_model(policy if policy.startswith(PREFIX) else PREFIX + policy) if policy else None
    players = _load_players(env, env_args(args))
    if chosen is not None and chosen.needs_player and not players:
        raise ConfigError(f"--policy {policy} takes its answers from an environment: add --env ENV_ID")
    server = ReferenceServer(faults=faults, host=host, port=port, policy=chosen)
    for lane, player in players.items():
        server.add(lane, player)
    if not is_loopback(host):
        _say(
            f"warning: {host} is not a loopback address: everybody who can reach this machine over the network "
            "can use the server"
        )
    run = shlex.join(["bench", "run", ",".join(players) or "gsm8k", *(word for text in args for word in ("-a", text))])
    return server, f"{run} -m {PREFIX}oracle" if players else f"{run} -m any-name"


def _load_players(env: str | None, args: JsonDict) -> dict[str, EnvironmentPlayer]:
    names = [name.strip() for name in (env or "").split(",") if name.strip()]
    if env is not None and not names:
        raise ConfigError("--env is empty; give environment ids, as in --env gsm8k,wordle")
    if args and not names:
        raise ConfigError("-a/--env-args has no effect without --env")
    if not names:
        return {}
    from harness.engine.environment_loader import load_environment

    players: dict[str, EnvironmentPlayer] = {}
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
        with stop_signals() as stop:
            url = await server.start()
            try:
                sys.stdout.write(f"{url}\n")
                sys.stdout.flush()
                _say(_examples(url, command))
                await stop.wait()
            finally:
                await server.stop()
                _say(_report(server))

    uvloop.run(main())


def _report(server: ReferenceServer) -> str:
    """Format a report of served requests, with one line per fault rule."""
    found = server.fault_report()
    count = server.stats.requests
    requests = f"served {count} request{'' if count == 1 else 's'}"
    rules = cast("list[dict[str, object]]", found["rules"])
    if not rules:
        return requests
    width = max(len("fault"), *(len(str(rule["fault"])) for rule in rules))
    lines = [
        f"{requests}, {found['faults']} fault{'' if found['faults'] == 1 else 's'}",
        f"{'fault':{width}}  asked  hit",
    ]
    return "\n".join(
        [*lines, *(f"{rule['fault']!s:{width}}  {rule['requests']:5}  {rule['hits']:3}" for rule in rules)]
    )


def _examples(url: str, command: str) -> str:
    body = json.dumps({"model": f"{PREFIX}echo", "messages": [{"role": "user", "content": "hello"}]})
    return (
        "try:\n"
        f"  curl -s {url}/chat/completions -H 'Content-Type: application/json' -d '{body}'\n"
        f"  {command} -b {url}\n"
        "Ctrl-C ends the server and prints the counts."
    )


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
