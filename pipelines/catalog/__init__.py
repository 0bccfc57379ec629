"""The built-in pipelines, a room each.

Each is registered under the entry point group `circinus.pipelines`, exactly as a pipeline of
another package would be; nothing in the project treats them differently. Every operator is a real
algorithm, and every example has exact ground truth and is drawn from the generator handed in, so
that a seed names a workload. How hard the examples are is a design choice: it spreads the
accuracies of the configurations, which mean nothing for the world.
"""
