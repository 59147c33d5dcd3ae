"""bench: a TOML-driven, multi-environment benchmark harness for language models and agents."""
