"""Tools for those who calibrate the models; nothing here runs in a simulation."""
