//! The offload runtime: queues, polling, fallback, metrics, and the tokio adapter.
