"""The HTTP shell: FastAPI for people and publishers, raw ASGI for the MCP endpoint."""
