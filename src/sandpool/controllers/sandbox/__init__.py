"""The Sandbox controller: keeps one pod, its storage and its Service as a Sandbox says, and tells in its status what is."""
