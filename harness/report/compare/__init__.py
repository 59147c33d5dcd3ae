"""Comparison of runs (`bench compare`, `bench gate`). Modules: choose pairs (`pairing`), read each run and compare two
(`sides`), print (`screen`), apply the gate (`verdicts`), and plan the sample size (`planning`). Statistics are in
`stats`."""
