"""The numbers that we publish, from what is measured (`standard`, `kube`) to what is written (`publish`). Not part of the package.

Results are files of JSON in `results/`, each with the conditions under which it was measured; tables are made from them by a
command and never by hand. Nothing here asserts a time.
"""
