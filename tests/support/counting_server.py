"""The reference server for one environment, counting requests by rollout: `python -m counting_server ENV ARGS FAULTS`.
`bench serve` is the same server without the counts."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Mapping

from harness.engine.environment_loader import load_environment
from harness.reference.player import EnvironmentPlayer
from harness.reference.script import fault_script
from harness.reference.server import ReferenceServer


async def serve(env_id: str, args: Mapping[str, object], faults: Mapping[str, float]) -> None:
    player = EnvironmentPlayer(load_environment(env_id, **args))
    player.learn_all()
    server = ReferenceServer(faults=fault_script(**faults), count_rollouts=True)  # type: ignore[arg-type]
    server.add(env_id, player)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print(await server.start(), flush=True)
    await stop.wait()
    await server.stop()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])))
