"""The only code of gpuagent that runs as root. Standard library only, and modules that keep to it themselves."""
