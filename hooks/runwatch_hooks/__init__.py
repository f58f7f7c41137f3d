"""The hook inside the trainer: measures, streams, and acts when told to."""
