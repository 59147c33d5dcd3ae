"""Settings of a run, and the origin of each: layers, suite files, endpoints, providers. Entry point:
`resolver.resolve`. This package opens no network connections and imports no environments."""
