"""Speed and memory of bench, side by side with a bare loop over the same work. `make bench` runs it."""
