"""HTTP handlers: parse, one use case, render."""
