"""From settings to results: loader, plan, scheduler, rollouts, budgets and executors."""
