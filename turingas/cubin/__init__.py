"""Cubin files: the ELF structures, the attributes of .nv.info, reading and writing."""
