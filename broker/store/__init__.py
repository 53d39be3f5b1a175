"""Redis: the only package that imports its client. Foreign exceptions become core/errors.py here."""
