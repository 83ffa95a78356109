"""The gRPC service of the runtime sandboxd, for clients that speak it. Needs the extra `sandpool[grpc]`; the rest of boxd does not."""
