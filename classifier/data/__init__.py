"""Questions written for this project, and the check that their surface does not give the label away."""
