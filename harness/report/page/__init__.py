"""Report page (`bench report`): one self-contained HTML file, Markdown, or JSON.

Text from others cannot act in the page. Statistics are in `stats`.

    columns      the rollouts of a run as columns of numbers, in one pass over the journal
    gather       all data of the page
    differences  differences between the runs of one environment
    relations    reward by resources used
    methods      descriptions of the statistical methods
    sample       choice of examples shown with transcripts
    transcripts  a rollout as data for the page
    plots        figures as SVG, with matplotlib
    svg          conversion of matplotlib's SVG for a strict content security policy
    markup       HTML with escaping of all foreign text
    sections     sections of the page
    runs_part    sections about single runs: settings, how to reproduce
    strips       a mean with its interval as a small plot in a table cell
    content      examples and transcripts as data for the page's script
    document     the whole file: policy, style, script, data
    markdown     the same figures as Markdown
    as_json      all data for programs
"""
