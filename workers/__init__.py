"""What backend jobs import: publish resources, and serve them; needs neither FastAPI nor uvicorn."""
