"""The CPU device: runs cubins without a GPU, and sees what a GPU does not tell.

``launch`` runs one kernel; ``Device`` keeps memory and cubins between launches.
"""

from turingas.emulate.device import Device, Module, launch
from turingas.emulate.errors import DeviceError, Place
from turingas.emulate.report import Report

__all__ = ["Device", "DeviceError", "Module", "Place", "Report", "launch"]
