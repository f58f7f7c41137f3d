"""The audit: who did what and when, people and the policy alike. Append-only."""
