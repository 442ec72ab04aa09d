"""The application: jobs that use the connector, their sinks and settings, and the laptop cluster that runs them."""
