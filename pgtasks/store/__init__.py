"""The only floor that talks to PostgreSQL."""
