"""What here would keep a run from working, and what to do about it: the checks behind `bench doctor`. Owns no decision
of a run: settings are resolved, endpoints asked and sandboxes found by those who do so for runs.

findings      what a check says: ok, note or problem
subject       what is to be looked at: the endpoints, folders and environments of a target
examination   all checks, side by side, each with a time limit
interpreter   Python and the event loop
packages      what is installed, against what bench needs; extras
machine       processors, memory, open files
disk          where results go: room, rights, speed, what the file system can do
sandboxes     whether model-written code could be run
credentials   keys by the names of their variables
network       proxies and certificates
endpoints     one cheap request for each model at each endpoint
hub           whose the Hub's token is, and what it may do
environments  whether those of the target can be imported
imports       the process in which that is tried
"""
