"""What ``turingas lint`` says: hazards, scoreboards, banks, resources, structure."""
