"""A run in the formats of other tools. `formats` is the table of them and the one way in; each format has a module that
reads the journal and writes files. Nothing here changes a run."""
