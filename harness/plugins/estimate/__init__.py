"""`bench estimate`: the mean of a run over a random sample, corrected by finished runs of other models."""
