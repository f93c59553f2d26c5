//! The services and their wiring: listeners, sessions, upstream connections, admin pages, configuration.
