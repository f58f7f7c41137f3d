"""The service: stores what trainers stream, judges it by rules, and commands them."""
