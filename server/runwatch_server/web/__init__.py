"""What each request and each answer passes through, whatever its route."""
