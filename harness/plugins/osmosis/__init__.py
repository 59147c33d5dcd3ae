"""Import shim: agents, MCP folders, reward files and scripts written for the agent API of the SDK `osmosis_ai`
(releases up to 0.2.17) get bench's classes and functions on `import osmosis_ai`. `names` maps each SDK name to its
replacement in `harness.agents`, `finder` imports it, and `exceptions`, `registry` and `hosted` hold the parts that have
no replacement."""
