"""Who did what and when: people's and the policy's deeds, only ever added to."""
