"""Container logs: written to files, read back as text.

What may live here: the format, the files and their rotation, and positions in them. A record is a line: time, stream, F for a full line
or P for a part of one, and the text. Blocking functions run in threads.
"""
