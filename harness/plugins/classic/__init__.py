"""Compatibility implementation of the classic `verifiers` API, which classic packages get on `import verifiers`.
`surface` lists the names of each module, `modules` makes the modules, and the rest implements the names, mostly as a
thin layer over `harness.envs` and `harness.rubrics`. Nothing is imported before a package needs it."""
