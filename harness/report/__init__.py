"""Output for people and programs: the live display, the final table, comparisons, pages, and JSON.

Figures are computed in `stats`, and runs are read through `store`.

    text         text from others, cleaned for a terminal
    numerals     formatting of numbers, durations and counts
    live         the display on stderr: a live table on a terminal, otherwise plain lines
    live_table   the live table, fitted into a terminal
    live_lines   one run as cells of that table and as a plain line
    table        the final table
    layout       tables and paragraphs as lines of a given width
    side_by_side several models on the same tasks
    result_json  the output of `--json`
    runs         the list of runs
    page         a report page to publish: HTML, Markdown, JSON
    run_page     the page of one run; `run_facts` gathers its data, `run_digest` reads the journal
    transcript   one complete rollout

Only `text` prints text from others, and rich markup is off everywhere.
"""
