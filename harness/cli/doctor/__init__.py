"""Checks behind `bench doctor`: find problems that would stop a run, with advice. Settings, endpoints and sandboxes are
tested by the same code as in runs.

findings      status of a check: ok, note or problem
subject       selection of endpoints, folders and environments to check
examination   run all checks concurrently, each with a timeout
machine       Python, processors, memory, open files, proxies, certificates, sandboxes
disk          output folder: space, permissions, speed, file system
packages      installed packages against requirements; environments of the target
endpoints     API keys by the names of their variables; one cheap request per model and endpoint
hub           owner and rights of the Hub token; datasets of the environments
"""
