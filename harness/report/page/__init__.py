"""Runs as a page to publish: one HTML file that needs nothing else, Markdown for a README, or JSON. Owns what is on the
page, how it is laid out and that nothing that others wrote can act in it; computes nothing (`stats`).

    columns      the rollouts of a run as columns of numbers, one pass over the journal
    gather       everything that is on the page, gathered
    differences  how far the runs of one environment differ
    relations    reward against what a rollout took
    methods      how the figures were made, in words
    sample       which examples are shown with their transcripts
    transcripts  a rollout as data for the page
    plots        the door to matplotlib: figures as SVG
    svg          what matplotlib draws, made fit for a page under a strict policy
    markup       HTML in which no foreign text can become a tag
    sections     the parts of the page
    runs_part    its parts about single runs: settings, how to reproduce
    strips       a mean with its interval as a mark in a table
    content      examples and transcripts as data for the page's script
    document     the whole file: policy, style, script, data
    markdown     the same figures for a README
    as_json      all of it for programs
"""
