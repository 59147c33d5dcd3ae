"""`bench judge`: compare the scores of a run with labels of people, and draw the rollouts to label next."""
