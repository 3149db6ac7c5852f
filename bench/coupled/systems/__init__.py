"""Coupled systems of real finite-element codes, one module a field of physics."""
