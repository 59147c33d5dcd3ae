"""Reference models: policies that know an environment's ideal and null answers, and the OpenAI-compatible server that
plays them over real HTTP. Never imports `envs`: environments come in as `Player`s.

    policies  reference/oracle, noisy, null, echo, judge
    player    what an environment must be able to say; examples found by key or by prompt
    header    the loopback-only header that names a rollout
    faults    latency and failures on request: rules, counts and draws
    catalogue the faults that there are, by name
    script    rules as files and command lines have them
    spoil     right answers made wrong
    inject    faults on the wire (imported at start)
    server    start, stop, statistics
    http      aiohttp (imported at start)
"""
