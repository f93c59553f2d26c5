//! Commands about the server: version, stats, verbosity, flush_all and commands for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::command::{Admin, AdminVerb, Command};
use protocol::reply::{self, Reply};
use protocol::{Tokens, refusal};
use rustix::process::{Signal, getpid, kill_process};

use super::{Session, slab_commands};
use crate::backend::Outcome;
use crate::connection_table::CloseReason;

impl Session {
    pub(super) async fn inform(&mut self, command: Command<'_>) {
        match command {
            Command::MetaNoop => self.line(Reply::MetaNoop),
            Command::Version => reply::version(self.out.text(), VERSION),
            Command::Quit => self.quit(),
            Command::Verbosity { noreply, .. } => {
                if !noreply {
                    self.line(Reply::Ok);
                }
            }
            Command::FlushAll { delay_s, noreply } => self.flush_all(delay_s, noreply).await,
            Command::Stats { arguments } => self.stats(arguments).await,
            Command::Admin(admin)
                if admin.verb == AdminVerb::LruCrawler
                    && Box::pin(self.crawl(admin.arguments)).await => {}
            Command::Admin(admin) if admin.verb == AdminVerb::RefreshCerts => {
                self.refresh_certs().await;
            }
            Command::Admin(admin) => self.admin(&admin),
            _ => self.out.text().extend_from_slice(refusal::ERROR),
        }
    }

    /// Closes the connection because the client wants it.
    pub(super) fn quit(&mut self) {
        self.closing = true;
        self.close_reason = CloseReason::Normal;
    }

    pub(super) async fn flush_items(&self, delay_s: i32) -> Outcome<()> {
        self.context.counters.commands.cmd_flush.up();
        let flushed = self.context.backend.flush_all(delay_s).await;
        // Values that are written from now on need the dictionaries, which the flush has removed.
        self.context.values.dictionaries().keep_soon();
        flushed
    }

    async fn flush_all(&mut self, delay_s: i32, noreply: bool) {
        if !self.context.config.server.flush {
            self.context.counters.commands.cmd_flush.up();
            if !noreply {
                self.out.text().extend_from_slice(b"CLIENT_ERROR flush_all not allowed\r\n");
            }
            return;
        }
        match self.flush_items(delay_s).await {
            Err(failure) => self.fail(failure, noreply),
            Ok(()) if noreply => {}
            Ok(()) => self.line(Reply::Ok),
        }
    }

    async fn stats(&mut self, mut arguments: Tokens<'_>) {
        let page = arguments.next().unwrap_or_default();
        match page {
            b"reset" => {
                self.context.stats.reset();
                return self.line(Reply::Reset);
            }
            b"cachedump" => return Box::pin(self.cachedump(arguments)).await,
            b"conns" => return Box::pin(self.stats_conns()).await,
            b"detail" => return self.stats_detail(arguments.next().unwrap_or_default()),
            _ => {}
        }
        let page = String::from_utf8_lossy(page).into_owned();
        let Some(lines) = self.stats_page(&page).await else {
            return self.out.text().extend_from_slice(refusal::ERROR);
        };
        for (name, value) in lines {
            reply::stat(self.out.text(), &name, &value);
        }
        self.line(Reply::End);
    }

    /// Returns the names and values of a page of statistics, or `None` if there is no such page.
    pub(super) async fn stats_page(&mut self, page: &str) -> Option<Vec<(String, String)>> {
        // A page takes as long as many short commands, so the turn of this session ends with it.
        self.served = self.context.requests_per_turn;
        let stored = match page {
            // These pages are about this server; pages of memcached servers with the same name are not added.
            "settings" | "rebate" | "dictionaries" => Some(Vec::new()),
            // These pages are lists of STAT lines.
            "" | "items" | "slabs" | "sizes" | "extstore" => self.context.backend.stats(page).await,
            _ => None,
        };
        stored.map(|stored| self.context.stats.page(page, &stored))
    }

    /// Loads the certificates again. As in a memcached without TLS, the command is unknown if there are none.
    async fn refresh_certs(&mut self) {
        let tls = Arc::clone(&self.context.tls);
        if !tls.is_used() {
            return self.out.text().extend_from_slice(refusal::ERROR);
        }
        // The files may be on a disk that hangs.
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(Ok(())) => self.line(Reply::Ok),
            Ok(Err(problem)) => {
                let problem = problem.replace(['\r', '\n'], " ");
                self.out.text().extend_from_slice(format!("ERROR {problem}\r\n").as_bytes());
            }
            Err(_) => {
                self.out.text().extend_from_slice(b"SERVER_ERROR a defect ended the reload\r\n")
            }
        }
    }

    /// Serves `stats detail`. It accepts memcached's arguments, but there are no statistics by key prefix.
    fn stats_detail(&mut self, what: &[u8]) {
        match what {
            b"on" | b"off" => self.line(Reply::Ok),
            b"dump" => self.line(Reply::End),
            _ => {
                let usage = b"CLIENT_ERROR usage: stats detail on|off|dump\r\n";
                self.out.text().extend_from_slice(usage);
            }
        }
    }

    /// Ends the process as SIGTERM does, if clients may do this.
    fn shut_down(&mut self, mut arguments: Tokens<'_>) {
        let line: &[u8] = match (arguments.next(), arguments.next()) {
            _ if !self.context.config.server.shutdown => b"ERROR: shutdown not enabled\r\n",
            (None | Some(b"graceful"), None) => {
                self.closing = true;
                self.close_reason = CloseReason::Shutdown;
                // An operator's signal may have come first.
                if self.context.is_draining() || begin_to_end().is_ok() {
                    return;
                }
                b"SERVER_ERROR the signal could not be sent\r\n"
            }
            _ => b"CLIENT_ERROR invalid shutdown mode\r\n",
        };
        self.out.text().extend_from_slice(line);
    }

    fn admin(&mut self, admin: &Admin<'_>) {
        let out = self.out.text();
        match admin.verb {
            AdminVerb::Slabs | AdminVerb::Lru | AdminVerb::LruCrawler if admin.noreply => {}
            AdminVerb::Slabs => out.extend_from_slice(slab_commands::slabs(admin.arguments)),
            AdminVerb::Lru => out.extend_from_slice(slab_commands::lru(admin.arguments)),
            AdminVerb::LruCrawler => {
                out.extend_from_slice(slab_commands::lru_crawler(admin.arguments));
            }
            AdminVerb::CacheMemlimit => out.extend_from_slice(
                b"CLIENT_ERROR the memory limit is set at start (store.memory)\r\n",
            ),
            AdminVerb::Shutdown => self.shut_down(admin.arguments),
            // `inform` serves certificates, and `serve_alone` watchers.
            AdminVerb::Extstore | AdminVerb::RefreshCerts | AdminVerb::Watch => {
                out.extend_from_slice(refusal::ERROR);
            }
        }
    }
}

/// Sends this process the signal that drains it, once: a second one would end it at once.
fn begin_to_end() -> rustix::io::Result<()> {
    if IS_SIGNALLED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    kill_process(getpid(), Signal::TERM)
        .inspect_err(|_| IS_SIGNALLED.store(false, Ordering::Relaxed))
}

/// Whether a client has ended the process with `shutdown`.
static IS_SIGNALLED: AtomicBool = AtomicBool::new(false);

/// The answer to `version`: the version of memcached that this server emulates. Some clients read the last three
/// numbers of the answer and others the first three, so it has no others. `stats` has this server's version.
pub(crate) const VERSION: &str = "1.6.18";
