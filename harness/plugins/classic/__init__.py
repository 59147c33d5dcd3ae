"""Our own version of the classic `verifiers` API. Owns what classic packages find behind `import verifiers`: `surface`
says which name lies where, `modules` makes the modules, the rest is what the names stand for. Most of it is a thin
layer over `harness.envs`, `harness.rubrics` and `harness.rubrics`; none of it is imported before a package asks."""
