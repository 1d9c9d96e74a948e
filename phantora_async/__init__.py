"""The product: command line, coordinator, virtual time, reports. Never imports torch."""
