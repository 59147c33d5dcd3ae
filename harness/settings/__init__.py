"""What a run is and where every setting of it came from. Owns settings, their layers and their files; owns no network,
no environment variables, no import of an environment. `resolver.resolve` is the way in."""
