"""What a process serves and how processes are kept: workers, their supervisor, locks, health, golden questions."""
