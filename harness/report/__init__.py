"""Tells people: the live display while a run goes on, the final table, and the JSON for programs. Owns layout and
words, computes nothing (`stats`) and knows no files (`store`).

    text         text that others wrote, made harmless for a terminal
    numerals     numbers, durations and counts as words
    live         the display on stderr: a live table on a terminal, else plain lines
    frame        the live table, fitted into a terminal
    lines        one run as cells of that table and as a plain line
    table        the final table
    result_json  what `--json` prints

Nothing outside `text` puts foreign text on a screen, and rich markup is off everywhere."""
