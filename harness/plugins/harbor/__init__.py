"""Tasks in the Harbor format as environments: `harbor` and `harbor/NAME`. `places` finds folders of tasks, also in git
repositories, `task_file` reads a task, `environment` runs it in a container, and `verifier` runs its tests."""
