"""Training: scikit-learn (extra `train`) fits, plain arrays come out."""
