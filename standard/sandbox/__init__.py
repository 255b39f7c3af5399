"""Retrieved text is data: the only door through which untrusted text enters a prompt."""
