"""What the program tells about itself: logs, metrics, stories. Everything above may use it; it decides nothing."""
