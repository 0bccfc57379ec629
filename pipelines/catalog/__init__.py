"""The built-in pipelines, a file each.

Each is registered under the entry point group `circinus.pipelines`, exactly as a pipeline of
another package would be; nothing in the project treats them differently.
"""
