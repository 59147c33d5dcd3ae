"""Types, errors, records, content keys, state, redaction, safe text and size limits: what every other room uses."""
