"""What nodes have room for: taints, what pods ask for, and lists that come in pages."""
