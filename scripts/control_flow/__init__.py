"""Cases of conditional execution: see record_control_flow.py."""
