"""The process that serves operators over gRPC for a share of one machine, and its client."""
