"""Import shim that answers `import osmosis_ai` for agents, MCP folders, reward files and scripts written for the agent
API of that SDK (releases up to 0.2.17). `names` maps each SDK name to its replacement in `harness.agents`, `finder`
imports it, and `exceptions`, `registry` and `hosted` hold the parts that have no replacement."""
