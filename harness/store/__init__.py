"""What is on disk and on the Hub: run folders, the journal, the dataset built from it, and its push. Knows records and
statistics; never imports an environment, a model client or the engine."""
