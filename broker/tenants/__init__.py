"""Tenants on this replica: `directory` knows them, `quotas` counts what they hold."""
