"""Fault injection for `bench serve`: HTTP errors, broken connections and invalid replies at chosen requests.

options   the options of `bench serve` (imported when it is called)
script    parser of fault files and shorthands
catalogue the kinds of faults, by name
rules     selects the requests that get a fault
inject    sends a fault
spoil     turns a correct reply into a faulty one
"""
