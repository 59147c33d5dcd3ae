"""Runs compared: which with which (`pairing`, `earlier`), what each came to example by example (`sides`), how far two
differ (`difference`) and on which examples (`matching`), how that is told (`screen`), what a gate makes of it
(`verdicts`), and how many examples the next comparison takes (`planning`). Owns no statistic: `stats` alone does."""
