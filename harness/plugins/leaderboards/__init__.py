"""Options of `bench push` that propose a run's result to a model's repository on the Hub, by a pull request."""
