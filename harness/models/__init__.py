"""Clients for model endpoints: limits, retries, health and providers.

pool       clients by endpoint, replicas, `BoundChat` (a model as an environment calls it)
chat       client of one endpoint: runs a request from queueing to reply
target     address, key and headers of an endpoint
limits     slots, rate limits and adaptive concurrency of one URL and key
health     whether an endpoint as a whole is usable; circuit breaker
retry      which failures are retried, and when
failures   description of a failed attempt
provider   interface of providers, which send a call and parse its reply
openai_provider  provider for the OpenAI wire format
wire       bodies and replies in the OpenAI wire format
transport  HTTP with aiohttp (imported at the first request)
litellm    provider that sends requests through litellm (imported when a URL names one of its providers)
litellm_connections  restrictions of litellm's connections
preflight  a test request before a run
clock      time, replaceable in tests
"""
