"""What talks to a model: limits, retries, health and the OpenAI wire format. Never imports `envs`.

pool      clients by endpoint, replicas, one model as an environment sees it (`BoundChat`)
chat      one endpoint: the life of a request from slot to reply
target    address, key and headers of an endpoint
limits    slots, pace and adaptive concurrency of one (url, key)
health    whether the endpoint as a whole is usable; the circuit
retry     which failure is tried again, and when
failures  what went wrong with one attempt, in words
wire      request bodies and replies
transport aiohttp (imported at the first request)
litellm   the same exchange, made by litellm (imported when a URL names one of its providers)
preflight one request before a run: can this endpoint be used at all?
clock     time, injectable
"""
