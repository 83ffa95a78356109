"""The file system of the data directory: how full it is, what is kept back for the API, and which pods take more than they may."""
