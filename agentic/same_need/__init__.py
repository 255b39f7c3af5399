"""Do two queries of a run ask for the same thing?"""
