"""Running authors' code: threads, deadlines, the shared event loop, and which exceptions stop where."""
