"""What `multiprocessing` imports as `__mp_main__` in a process that a program of `bench exec` has spawned. Owns
nothing: `exec` runs the program in its place. Nobody else imports it."""

from harness.plugins.osmosis.exec_command import run_again

run_again(globals())
