"""Module that `multiprocessing` imports as `__mp_main__` in a process spawned by a program of `bench exec`; it runs
that program in its own namespace. Not for other imports."""

from harness.plugins.osmosis.exec_command import run_again

run_again(globals())
