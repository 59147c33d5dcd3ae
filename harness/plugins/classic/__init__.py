"""Our own implementation of the classic API of `verifiers` (releases 0.1.8 to 0.3), which packages written for that API
get on `import verifiers`. `modules` lists and creates its modules; the others implement the names, mostly as a thin
layer over `harness.envs` and `harness.rubrics`. Nothing is imported before a package needs it."""
