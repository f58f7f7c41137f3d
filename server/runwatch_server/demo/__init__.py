"""`runwatch demo`: one fault, three trainings, and a real service that watches them."""
