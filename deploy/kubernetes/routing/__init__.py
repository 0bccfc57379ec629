"""Routes in a cluster: weights and autoscalers as objects, capacity as it is seen, a follower."""
