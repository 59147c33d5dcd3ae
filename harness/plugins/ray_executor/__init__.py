"""`--executor ray`: the processes of an environment run on the computers of a Ray cluster. The driver (this process)
asks all models and judges, and writes the journal; Ray only starts processes elsewhere and carries their messages."""
