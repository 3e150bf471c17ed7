"""What an SM gives: loops of SASS that read its clock (shared memory, register banks, tensor cores)."""
