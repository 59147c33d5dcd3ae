"""`bench view`: a local web server for reading the rollouts of recorded and running runs in a browser."""
