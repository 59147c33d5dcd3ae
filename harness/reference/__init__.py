"""Reference models: policies that know an environment's ideal and null answers, and the OpenAI-compatible server that
plays them over real HTTP. Never imports `envs`: environments come in as `Player`s.

    policies      reference/oracle, noisy, null, echo, judge
    player        what an environment must be able to say; examples found by key or by prompt
    header        the loopback-only header that names a rollout
    server        start, stop, statistics
    http          aiohttp (imported at start)
    fault_sources the interface of fault injection, which plugins implement
    script        fault scripts, by the plugin `script`
"""
