"""The wire format of the workers: `worker.proto` and the code that `make proto` makes from it."""
