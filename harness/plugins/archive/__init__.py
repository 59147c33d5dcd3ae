"""Commands over many recorded runs: `bench items` (examples over models) and `bench trend` (a model over time)."""
