"""Reference models: policies that know an environment's ideal and null answers, and the OpenAI-compatible server that
serves them over HTTP. Never imports `envs`: environments are passed as `Playable`s.

    policies      reference/oracle, noisy, null, echo, judge
    player        interface of an environment for the server; examples found by key or by prompt
    header        the loopback-only header that names a rollout
    server        start, stop, statistics
    http          aiohttp (imported at start)
    fault_sources interface of fault injection, which plugins implement
    script        fault scripts, parsed by the plugin `script`
"""
