"""Who may do what: API keys, their scopes, and the check on every route."""
