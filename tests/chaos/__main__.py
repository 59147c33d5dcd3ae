"""`make chaos`: plays every named round and as many random ones as are asked for, and prints what came of them."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

from chaos_catalogue import drawn, named
from chaos_others import Other, others
from chaos_ray import ray_rounds
from chaos_rounds import Round, Verdict, report
from chaos_scene import Scene
from ray_cluster import ray_cluster


def main() -> int:
    """Returns 1 if anything was lost, duplicated, wrong or left behind."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12, help="random ones")
    parser.add_argument("--ray-rounds", type=int, default=20, help="random ones on a Ray cluster, if Ray is installed")
    parser.add_argument("--only", default="", help="named rounds with these words, and no random ones")
    args = parser.parse_args()
    rounds: list[Round | Other] = [*named(), *others(), *drawn(args.seed, args.rounds)]
    cluster = contextlib.ExitStack()
    asked = 0 if args.only else args.ray_rounds
    if asked and importlib.util.find_spec("ray"):
        rounds += ray_rounds(cluster.enter_context(ray_cluster()), args.seed, asked)
    elif asked:
        print("no rounds on a Ray cluster: pip install 'bench-harness[ray]'", file=sys.stderr)
    if args.only:
        rounds = [each for each in rounds if args.only in each.title]
    began, verdicts = time.monotonic(), list[Verdict]()
    with (
        cluster,
        tempfile.TemporaryDirectory(prefix="chaos-") as folder,
        Scene(Path(folder), args.seed).open() as scene,
    ):
        for number, each in enumerate(rounds):
            print(f"{number + 1} of {len(rounds)}: {each.title}", file=sys.stderr)
            verdicts.append(each.verdict(scene, f"out{number}"))
    print(report(verdicts, seed=args.seed, seconds=time.monotonic() - began))
    return any(verdict.found for verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
