"""Routes: one endpoint over unlike deployment units, served by workers. May import the runtime."""
