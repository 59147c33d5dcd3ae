"""Statistics of scores: pure functions that return estimates with their uncertainty.

    distributions   normal, Student t, beta; quantiles of measured values
    methods      descriptions of the interval methods
    intervals    intervals of means and proportions (t, Wilson, Clopper–Pearson), bounds for missing scores
    arrays       conversion of scores to numpy arrays, reduction of rollouts to examples
    clusters     means over clustered examples
    variance     re-run variance and question variance
    passk        several attempts: pass@k, pass^k, G-Pass@k, best, worst, majority
    bootstrap    intervals of medians and ratios
    averages     averages over several environments
    signflip, hypotheses   tests, adjusted p-values, a gate's verdict
    paired       paired comparison: difference, interval, p-value, wins and losses
    difference   comparison of two runs: scores, range and verdict (used by all commands)
    power        sample sizes and detectable differences
    items        examples over models: discrimination, wrong labels, flaky ones
    subsets      few examples that rank models as all do
    drift        drift of a model over dated runs (e-process)
    ranks        places of several models with simultaneous intervals, groups that cannot be told apart
    equality     equality of two runs within a margin
    controls     control variates: the mean of a random sample, corrected by complete runs of other models
    agreement    agreement between judges and people
    labels       means corrected by labels of people, kappa with an interval
    sequences    confidence sequences (intervals that are valid under continuous monitoring)
    target       early stopping of a run at a given interval width
    standings    several models on the same tasks: numbers per model and pairwise differences
    scores       compact table of a run's scores
    summary      the numbers in `summary.json` and `--json`

An undefined number is None (null in JSON), never 0 or 1. Every number is reported with its method. Definitions are in
docs/concepts/numbers.md, explanations of the uncertainty in docs/concepts/statistics.md.
"""
