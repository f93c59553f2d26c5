//! A planted defect: one address behind which two memcached servers answer in turn, one connection each.

use std::io;
use std::net::SocketAddr;
use std::process::Stdio;

use harness::{Process, memcached};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Two memcached servers at one address.
pub(super) struct OneName {
    pub(super) address: SocketAddr,
    listener: TcpListener,
    stores: [(Process, u16); 2],
}

impl OneName {
    pub(super) async fn start() -> Result<Self, String> {
        let start = || memcached(None, None, Stdio::piped(), &[]);
        let stores = [start()?, start()?];
        let bind = async {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            Ok::<_, io::Error>((listener.local_addr()?, listener))
        };
        let (address, listener) = bind.await.map_err(|error| error.to_string())?;
        Ok(Self { address, listener, stores })
    }

    /// Passes bytes on for as long as it is polled.
    pub(super) async fn run(self) {
        let mut connections = JoinSet::new();
        for (_, port) in self.stores.iter().cycle() {
            let Ok((mut client, _)) = self.listener.accept().await else { continue };
            let port = *port;
            connections.spawn(async move {
                if let Ok(mut store) = TcpStream::connect(("127.0.0.1", port)).await {
                    // Either end may close the connection at any time.
                    let _ = copy_bidirectional(&mut client, &mut store).await;
                }
            });
        }
    }
}
