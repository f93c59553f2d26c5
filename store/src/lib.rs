//! The frame, the embedded store and the ketama ring.
