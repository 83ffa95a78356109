"""What containers write: kept in files, read back as text.

What may live here: the format, the files and their rotation, and finding one's place in them. One record per line: time, stream,
F for a whole line or P for a part of one, and the text. Blocking functions run in threads.
"""
