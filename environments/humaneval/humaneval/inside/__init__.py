"""What runs inside the sandbox. Nothing here is imported by the environment: its source is put into
the work folder, as a package of the same name."""
