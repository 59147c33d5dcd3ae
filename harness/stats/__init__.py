"""Pure functions of scores: estimates with their uncertainty. Owns no files, no printing and no model of a run.

    quantiles, distributions   normal, Student t, beta
    methods      what an interval's method is called and means
    intervals    mean with its interval, Wilson, Clopper–Pearson, bounds for what has no score
    arrays       columns of numbers, rollouts reduced to examples
    clusters     examples that resemble each other
    variance     re-run noise apart from question noise
    passk        k attempts: pass@k, pass^k, G-Pass@k, best, worst, majority
    bootstrap    medians and ratios
    averages     over several environments
    signflip, hypotheses   tests, adjusted p-values, a gate's verdict
    paired       two measurements of the same examples: difference, interval, p-value, wins and losses
    difference   two runs: which scores are compared, their range, the verdict (what every command calls)
    power        how many examples and rollouts a difference takes
    ranks        places of several models
    agreement    judges against people
    sequences    intervals that may be watched
    target       when a run that watches its own has seen enough
    standings    several models on the same tasks: each one's numbers, and every pair's difference
    scores       the compact table that a journal is folded into
    summary      the table's numbers, as `summary.json` and `--json` give them

What is undefined is None (null in JSON), never 0 or 1; the method's name travels with the number. What each number
means: docs/concepts/numbers.md; how sure it is: docs/concepts/statistics.md."""
