"""Types, errors, records, content keys, state, redaction of secrets, text sanitizing and size limits, which all other
packages use."""
