"""The gateway: settings, decision, wire, operation and command line."""
