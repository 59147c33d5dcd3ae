"""Report page (`bench report`): one self-contained HTML file, Markdown, or JSON.

Text from others cannot act in the page. Statistics are in `stats`.

    columns      the rollouts of a run as columns of numbers, and reward by resources used
    gather       all data of the page: runs, labels, differences, statistical methods
    content      examples and transcripts as data for the page's script, and all data as JSON
    plots        figures as SVG, with matplotlib
    markup       HTML with escaping of all foreign text
    sections     sections about results
    document     the whole file: policy, style, script, data, sections about runs
    markdown     the same figures as Markdown
"""
