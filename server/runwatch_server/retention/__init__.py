"""How long what of a run is kept: by the service's settings, a project's, or a run's own."""
