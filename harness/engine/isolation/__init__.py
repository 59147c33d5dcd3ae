"""Environments in processes of their own: what such a process does (`child`, `service`, `asking`), how it is started
and ended (`spawned`, `keeper`), how it is talked to (`wire`, `process`), how many there are and who is put where
(`pool`), and what stands for the environment in this process (`stand_in`).

    parent: plan, gates, journal, models, keys        child: environment, rubric
    ─────────────────────────────────────────────────────────────────────────────
    executors.isolated ── generate, score ──────────► executors.local
                       ◄── ask (model or judge) ─────
                       ── answer, refused, waits ───►
                       ◄── record ───────────────────

A child has no API key (`spawned.Recipe`), a bound on its memory, and no way to the journal. It lives no longer than its
parent: when that is gone, its keeper ends it and all that it has started."""
