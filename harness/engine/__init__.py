"""Turn settings into results: loader, plan, scheduler, rollouts, budgets and executors."""
