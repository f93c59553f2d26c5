//! A way over TLS for clients that speak without it: what they send to a tunnel reaches the server over TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use rebate_tests::Authority;
use tls::{Application, Client, ClientOptions};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

/// A tunnel, which ends when it is dropped.
pub(crate) struct Tunnel {
    pub(crate) address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Starts a tunnel to the server at `to`, with this certificate of the authority.
    pub(crate) fn start(
        authority: &Authority,
        certificate: Option<&str>,
        to: SocketAddr,
        application: Application,
    ) -> Self {
        let file = |suffix| certificate.map(|name| authority.path(&format!("{name}.{suffix}")));
        let options = ClientOptions {
            ca_file: authority.path("ca.pem"),
            cert_file: file("pem"),
            key_file: file("key"),
            server_name: None,
        };
        let client = Arc::new(Client::load(options).expect("credentials"));
        let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let executor = executor.expect("tokio starts");
        let listener = executor.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            executor.block_on(async {
                tokio::select! {
                    () = carry(&listener, &client, to, application) => {}
                    _ = ended => {}
                }
            });
        });
        Self { address, end: Some(end), thread: Some(thread) }
    }
}

async fn carry(listener: &TcpListener, client: &Arc<Client>, to: SocketAddr, what: Application) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut here, _)) = listener.accept().await {
        let client = Arc::clone(client);
        connections.spawn(async move {
            let _ = here.set_nodelay(true);
            if let Ok(mut there) = client.connect(&to.to_string(), what).await {
                let _ended = tokio::io::copy_bidirectional(&mut here, &mut there).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
