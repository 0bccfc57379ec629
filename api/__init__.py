"""How users reach Circinus: HTTP, the command line, and the store behind them.

Use cases know no HTTP, routes know no storage, and `api.bootstrap` is the one place that says
which concrete adapter stands behind which Protocol. Every state that a user waits on is a row in
the store, so a restart at any point continues where it was.
"""
