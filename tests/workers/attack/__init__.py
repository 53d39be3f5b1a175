"""Attacks on workers: what goes wrong there hurts nobody else."""
