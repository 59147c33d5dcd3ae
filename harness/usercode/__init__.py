"""Running authors' code: threads, timeouts, the shared event loop, and the boundary for exceptions."""
