"""Comparison of runs (`bench compare`, `bench gate`). Modules: choose pairs (`pairing`, `earlier`), read each run
(`sides`), compare two runs and find differing examples (`matching`), print (`screen`), apply the gate (`verdicts`), and
plan the sample size (`planning`). Statistics are in `stats`."""
