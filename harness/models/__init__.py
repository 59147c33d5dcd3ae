"""Clients for model endpoints: limits, retries, health and providers. Never imports `envs`.

pool      clients by endpoint, replicas, `BoundChat` (a model as an environment calls it)
chat      client of one endpoint: runs a request from queueing to reply
target    address, key and headers of an endpoint
limits    slots, rate limits and adaptive concurrency of one (url, key)
health    whether the endpoint as a whole is usable; circuit breaker
retry     which failures are retried, and when
failures  description of a failed attempt
provider  how a call is sent and its reply read; providers of other packages
openai_provider  the OpenAI wire format: `wire` builds bodies and reads replies
transport aiohttp (imported at the first request)
litellm   the provider that goes through litellm (imported when a URL names one of its providers)
preflight a test request before a run
clock     time, replaceable in tests
"""
