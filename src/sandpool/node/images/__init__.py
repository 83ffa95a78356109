"""What a sandbox's file system is made of: the machine's own /usr, folders, and images of the OCI kind.

What may live here: finding, pulling, verifying, unpacking, sharing and removing images. What becomes of their layers is the
backends'.
"""
