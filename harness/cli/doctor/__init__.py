"""Checks behind `bench doctor`: find problems that would stop a run, with advice. Settings, endpoints and sandboxes are
tested by the same code as in runs.

findings      status of a check: ok, note or problem
subject       selection of endpoints, folders and environments to check
examination   run all checks concurrently, each with a timeout
interpreter   Python and the event loop
packages      installed packages against requirements; extras
machine       processors, memory, open files
disk          output folder: space, permissions, speed, file system
sandboxes     support for model-written code
credentials   API keys by the names of their variables
network       proxies and certificates
endpoints     one cheap request per model and endpoint
hub           owner and rights of the Hub token
datasets      Hub datasets of the environments
environments  importability and requirements
imports       the separate process for imports
"""
