"""The table models × environments of `bench report` and `bench compare`: its cells and marks, its footnotes, and its
form as Markdown, LaTeX, CSV and HTML."""
