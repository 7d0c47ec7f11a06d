"""Tests of leases: heartbeats, fencing, sweeps, stalls, lost replies."""
