//! The open-loop load generator: honest latency, many connections, verified bytes.
