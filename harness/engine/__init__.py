"""Engine that turns the settings of runs into results: loader, plan, scheduler, rollouts, budgets and executors."""
