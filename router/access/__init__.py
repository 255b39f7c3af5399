"""Who may call, and how much: keys, certificates, tenants, limits, places."""
