"""Authentication and authorization: API keys, their scopes, and the check on every route."""
