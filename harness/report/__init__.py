"""Tells people: the live display while a run goes on, the final table, and the JSON for programs. Owns layout and
words and computes nothing (`stats`); what looks back at runs reads them through `store`, nothing else knows of files.

    text         text that others wrote, made harmless for a terminal
    numerals     numbers, durations and counts as words
    live         the display on stderr: a live table on a terminal, else plain lines
    frame        the live table, fitted into a terminal
    lines        one run as cells of that table and as a plain line
    table        the final table
    grid         names and figures as lines, in as many tables as the width needs
    side_by_side several models on the same tasks
    result_json  what `--json` prints
    runs         the list of runs
    page         runs as a page to publish: HTML, Markdown, JSON
    run_page     one run on a page; `run_facts` gathers what is on it, `run_digest` reads the journal
    transcript   one rollout, whole

Nothing outside `text` puts foreign text on a screen, and rich markup is off everywhere."""
