//! Tests the client libraries with the built binary and with memcached: what one client stores, the others read.

mod c;
mod rust;

use std::path::PathBuf;

use harness::poll_for;
use rebate_tests::{Server, TIMEOUT};
use tempfile::TempDir;

/// A cache with a near socket, and its folder.
struct Near {
    server: Server,
    folder: TempDir,
}

impl Near {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("near").display().to_string();
        let server = Server::rebate_serve("embedded", "on", &["--near-listen", &path]);
        let near = Self { server, folder };
        poll_for(TIMEOUT, || near.path().exists().then_some(())).expect("it listens");
        near
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("near")
    }

    /// Returns the near address.
    fn near(&self) -> String {
        format!("near:{}", self.path().display())
    }

    /// Returns the near address, and the TCP address for the time without it.
    fn both(&self) -> String {
        format!("{}|{}", self.near(), self.server.addr())
    }
}
