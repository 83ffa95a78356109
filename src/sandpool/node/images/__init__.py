"""What the file system of a sandbox is made of: the machine's own /usr, directories of the machine, and OCI images.

What may live here: finding, pulling, verifying, unpacking, sharing and removing images. Mounting their layers is the runtimes' work.
"""
