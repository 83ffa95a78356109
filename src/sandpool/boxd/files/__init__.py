"""Files of the sandbox, reached by open folders and never by a path that could change on the way."""
