"""What is learnt: scores, seconds, noise, tails, earlier queries; imports `deployment`."""
