"""`pointsman eval answers`: whole answers on questions whose answers and supporting documents are known."""
