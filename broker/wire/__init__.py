"""MCP bytes to core values and back: pure; one module per dialect, each with its own error table."""
