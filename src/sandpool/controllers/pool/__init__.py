"""The warm pool controller: keeps a number of unclaimed sandboxes running. It sees kube.Api, caches and the assigner only."""
