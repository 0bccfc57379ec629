"""The composition root: the one package of the product that names concrete classes."""
