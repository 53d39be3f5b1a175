"""Logs and metrics in domain words."""
