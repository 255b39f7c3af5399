"""What the decision is made of and what it remembers: policies, models, first looks, shares, outcomes."""
