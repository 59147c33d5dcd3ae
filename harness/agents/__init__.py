"""Agents under evaluation: the contract that an agent, an MCP folder and an eval function keep, how they are loaded,
and the environment that runs them. Owns no engine: planning, calls, retries and journal are every environment's."""
