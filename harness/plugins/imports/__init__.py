"""Import formats of `bench import`."""
