"""The answer to `import osmosis_ai` for agents, MCP folders, reward files and scripts that were written for the agent
API of that SDK (releases up to 0.2.17). Owns where its names lead (`names`), how an import gets there (`finder`), and
the few parts that mean nothing to bench but stand in such files (`exceptions`, `registry`, `hosted`); what the names
lead to is `harness.agents`."""
