"""Rebuild the shipped model pair from the standard library's own text."""
