"""The page: what people see of the service, rendered here and acted on through the API."""
