"""Whether a process is alive and ready: told over HTTP, and to systemd."""
