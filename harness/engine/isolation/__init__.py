"""Run environments in isolated worker processes.

The child side is in `child` and `service`; start and end of processes in `spawned` and `keeper`;
communication in `wire` and `process`; the number of processes and the assignment of work in `pool`; the parent's proxy
of the environment in `proxy`.

    parent: plan, gates, journal, models, keys        child: environment, rubric
    ─────────────────────────────────────────────────────────────────────────────
    executors.isolated ── generate, score ──────────► executors.local
                       ◄── ask (model or judge) ─────
                       ── answer, refused, waits ───►
                       ◄── record ───────────────────

A child has a memory limit, but no API keys (`spawned.Recipe`) and no access to the journal. When the parent exits, the
keeper ends the child and all processes that the child has started.
"""
