"""Implementation of the classic API of `verifiers` (releases 0.1.8 to 0.3). Packages written for that API get it on
`import verifiers`. `modules` lists and creates the modules of the API; the other modules here implement its names,
mostly as thin layers over `harness.envs` and `harness.rubrics`. Each is imported only when a package needs it."""
