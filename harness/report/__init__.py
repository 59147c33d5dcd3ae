"""Output for people and programs: the live display, the final table, comparisons, pages, and JSON.

Statistics are computed in `stats`, and runs are read through `store`.

    text         consoles that print untrusted text literally
    numerals     formatting of numbers, durations and counts
    layout       tables and paragraphs formatted to a given width
    live         the display on stderr: a live table on a terminal, otherwise plain lines
    live_table   the live table, fitted into a terminal; each run's rate and time left
    table        the final table, and the output of `--json`
    compare      comparisons of runs, and the gate
    changes      comparison of a rescored or replayed run with its parent
    side_by_side several models on the same tasks
    runs         the list of runs, and suggested next steps
    run_page     the page of one run; `run_facts` gathers its data, `run_digest` reads the journal
    transcript   one complete rollout
    page         a report page to publish: HTML, Markdown, JSON
    frames       runs as data frames

Untrusted text is printed only through `text`, and rich markup is off everywhere.
"""
