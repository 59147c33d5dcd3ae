"""Report page (`bench report`): one self-contained HTML file, Markdown, or JSON.

Untrusted text is escaped, so it cannot run in the page. Statistics are in `stats`.

    columns      the rollouts of a run as columns of numbers, and reward by resources used
    gather       all data of the page: runs, labels, differences, statistical methods
    content      examples and transcripts as data for the page's script, and all data as JSON
    plots        figures as SVG, with matplotlib
    markup       HTML with escaping of all untrusted text
    sections     sections about results
    document     the whole HTML file: security policy, style, script, data, sections about runs
    markdown     the tables of the page as Markdown
"""
