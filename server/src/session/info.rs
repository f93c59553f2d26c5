//! Commands about the server: version, stats, verbosity, flush_all and commands for operators.

use protocol::command::{Admin, AdminVerb, Command};
use protocol::reply::{self, Reply};
use protocol::{Tokens, refusal};

use super::Session;

impl Session {
    pub(super) async fn inform(&mut self, command: Command<'_>) {
        match command {
            Command::MetaNoop => self.line(Reply::MetaNoop),
            Command::Version => reply::version(self.out.text(), VERSION),
            Command::Quit => self.closing = true,
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
            Command::Admin(admin) => self.admin(&admin),
            _ => self.out.text().extend_from_slice(refusal::ERROR),
        }
    }

    async fn flush_all(&mut self, delay_s: i32, noreply: bool) {
        self.context.counters.commands.cmd_flush.up();
        match self.context.backend.flush_all(delay_s).await {
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
            b"detail" => return self.stats_detail(arguments.next().unwrap_or_default()),
            _ => {}
        }
        let page = String::from_utf8_lossy(page).into_owned();
        let stored = match &page[..] {
            // Only this server has these pages. A memcached server's page of the same name would only confuse.
            "settings" | "rebate" => Some(Vec::new()),
            // These pages are lists of STAT lines. Other pages have other forms.
            "" | "items" | "slabs" | "sizes" | "conns" | "extstore" => {
                self.context.backend.stats(&page).await
            }
            _ => None,
        };
        let Some(stored) = stored else {
            return self.out.text().extend_from_slice(refusal::ERROR);
        };
        for (name, value) in self.context.stats.page(&page, &stored) {
            reply::stat(self.out.text(), &name, &value);
        }
        self.line(Reply::End);
    }

    /// Serves `stats detail`. Statistics by key prefix are not kept, but a command to start, stop or show them is not
    /// an error.
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

    fn admin(&mut self, admin: &Admin<'_>) {
        let out = self.out.text();
        match admin.verb {
            // Only memcached has slabs and LRU segments. `OK` is true here, because nothing had to be done.
            AdminVerb::Lru | AdminVerb::LruCrawler | AdminVerb::Slabs if !admin.noreply => {
                out.extend_from_slice(Reply::Ok.line());
            }
            AdminVerb::Lru | AdminVerb::LruCrawler | AdminVerb::Slabs => {}
            AdminVerb::CacheMemlimit => out.extend_from_slice(
                b"CLIENT_ERROR the memory limit is set at start (store.memory)\r\n",
            ),
            AdminVerb::Shutdown => out.extend_from_slice(b"ERROR: shutdown not enabled\r\n"),
            AdminVerb::Watch => out.extend_from_slice(b"ERROR watch is not supported\r\n"),
            AdminVerb::Extstore | AdminVerb::RefreshCerts => out.extend_from_slice(refusal::ERROR),
        }
    }
}

/// The answer to `version`: the version of the memcached whose behaviour this is, then the version of this server.
const VERSION: &str = concat!("1.6.18-rebate-", env!("CARGO_PKG_VERSION"));
