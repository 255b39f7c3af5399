"""How the shipped model is made: `python -m standard.embedding.export FOLDER`; never imported while serving."""
