"""Stelae: a replicated tablet store whose engines are plugins."""

__version__ = "0.1.0"
