"""The web page: rendered here; its actions go through the API."""
