"""Settings of a run, and the origin of each: layers, suite files, endpoints, providers. Entry point:
`resolver.resolve`. Nothing here opens a network connection or imports an environment."""
