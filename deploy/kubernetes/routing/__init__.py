"""Routes in a cluster: weights and autoscalers as objects, observed capacity, a follower."""
