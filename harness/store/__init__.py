"""Run folders on disk, the journal, the dataset built from it, and publishing on the Hub. Depends on records and
statistics; never imports an environment, a model client or the engine."""
