"""Types, errors, records, content keys, state, secret redaction, text sanitizing and size limits, used by all other
rooms."""
