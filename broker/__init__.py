"""The resource broker for MCP: jobs publish, tenants' MCP clients subscribe, on any replica."""
