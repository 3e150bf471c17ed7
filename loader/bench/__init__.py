"""The engine of `turingas bench`: contenders and rounds, files of results, figures; cuDNN and PyTorch."""
