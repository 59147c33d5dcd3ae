"""The table of models × environments in `bench report` and `bench compare`: its cells and marks, its footnotes, and its
output as Markdown, LaTeX, CSV and HTML."""
