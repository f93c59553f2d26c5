//! The model behind a listener of the simulated network.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;

use tokio::time::Instant;

use super::{Memcached, Step};
use crate::network::{Endpoint, ListeningPort};

/// Serves clients for as long as the future is polled. `unix_s` is the date at `since`.
pub async fn serve(
    mut port: ListeningPort,
    model: Rc<RefCell<Memcached>>,
    since: Instant,
    unix_s: i64,
) {
    loop {
        let (connection, _) = poll_fn(|task| port.poll_next(task)).await;
        let model = Rc::clone(&model);
        tokio::task::spawn_local(async move {
            // A connection that fails takes nothing else with it.
            let _ = converse(&connection, &model, since, unix_s).await;
        });
    }
}

async fn converse(
    connection: &Endpoint,
    model: &RefCell<Memcached>,
    since: Instant,
    unix_s: i64,
) -> std::io::Result<()> {
    let (mut input, mut out) = (Vec::new(), Vec::new());
    let mut space = vec![0; 16 << 10];
    loop {
        let bytes = connection.read(&mut space).await?;
        if bytes == 0 {
            return Ok(());
        }
        input.extend_from_slice(&space[..bytes]);
        let mut taken = 0;
        let is_over = loop {
            let mut model = model.borrow_mut();
            model.set_time(unix_s + since.elapsed().as_secs() as i64);
            match model.step(&input[taken..], &mut out) {
                Step::Served(bytes) => taken += bytes,
                Step::Incomplete => break false,
                Step::Close => break true,
            }
        };
        input.drain(..taken);
        connection.write_all(&out).await?;
        out.clear();
        if is_over {
            return Ok(());
        }
    }
}
