"""The protocols of existing runtimes, so that clients made for those work unchanged."""
