"""Generation A: the role-specific control routes of NeMo Gym's checkpoint participants (wire-protocol part one)."""
