"""How users reach Circinus: HTTP, the command line, and the store behind them.

Use cases know no HTTP, routes know no storage. Only `api.bootstrap` decides which concrete
adapter implements which Protocol. Every state that a user waits on is a row in
the store, so a restart at any point continues where it was.
"""
