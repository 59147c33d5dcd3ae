"""Pure functions of scores: estimates with their uncertainty. Owns no files, no printing and no model of a run.

    quantiles   normal and Student t
    intervals   mean with its interval, Wilson, bounds for what has no score
    passk       pass@k and pass^k
    paired      two measurements of the same examples: difference, interval, p-value, wins and losses
    standings   several models on the same tasks: each one's numbers, and every pair's difference
    scores      the compact table that a journal is folded into
    summary     the table's numbers, as `summary.json` and `--json` give them

What is undefined is None (null in JSON), never 0 or 1; the method's name travels with the number. What each number
means: docs/concepts/numbers.md."""
