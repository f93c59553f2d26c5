//! Tests a link against a server that the test simulates, with a clock that the test controls.

use std::time::Duration;

use device::Pool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use units::{ByteCount, ManualClock};

use super::*;
use crate::config::HostPort;

struct Fixture {
    listener: TcpListener,
    link: Link,
    clock: ManualClock,
}

impl Fixture {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket").to_string();
        let clock = ManualClock::default();
        let link = Link::new(&member(&address), TIMING, limits(&clock), &Rc::default());
        Self { listener, link, clock }
    }

    fn ask(&self) -> Issued {
        self.ask_on(Traffic::Interactive)
    }

    fn ask_on(&self, traffic: Traffic) -> Issued {
        let expect = Expect::Number;
        self.link.request(traffic, expect, |out| out.text().extend_from_slice(b"incr k 1\r\n"))
    }

    /// Advances the clock.
    fn pass(&self, time: Duration) {
        self.clock.advance(time.into());
    }

    /// Returns the connection for a traffic class, after a first request and its answer.
    async fn connected(&self, traffic: Traffic) -> TcpStream {
        let first = self.ask_on(traffic);
        let mut stream = self.accept(1).await;
        answer(&mut stream, b"1\r\n").await;
        assert!(matches!(first.await, Ok(Answer::Number(1))));
        stream
    }

    /// Accepts the next connection and reads `requests` requests from it.
    async fn accept(&self, requests: usize) -> TcpStream {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        read_requests(&mut stream, requests).await;
        stream
    }
}

fn member(address: &str) -> Arc<Member> {
    let server = HostPort::parse(address, None).expect("an address");
    Arc::new(Member::new(MemberAddress::Memcached(server)))
}

fn limits(clock: &ManualClock) -> Limits {
    Limits {
        pool: Pool::heap(ByteCount::mib(1)),
        budget: Budget::new(1 << 20),
        counters: Arc::default(),
        value_bytes_max: 1 << 20,
        held_bytes_max: ByteCount::mib(1),
        login: None,
        clock: Arc::new(clock.clone()),
        network: None,
    }
}

fn health(link: &Link) -> &Health {
    let Link::Server(server) = link else { panic!("a link to a server") };
    &server.interactive.health
}

fn bulk(link: &Link) -> &Socket {
    let Link::Server(server) = link else { panic!("a link to a server") };
    &server.bulk
}

async fn read_requests(stream: &mut TcpStream, requests: usize) {
    let mut bytes = vec![0; requests * b"incr k 1\r\n".len()];
    stream.read_exact(&mut bytes).await.expect("requests");
}

async fn answer(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).await.expect("the link reads");
}

fn fault(answer: Result<Answer, LinkError>) -> LinkFault {
    answer.expect_err("the server does not answer").fault
}

const TIMING: Timing = Timing {
    request: Duration::from_millis(20),
    connect: Duration::from_secs(60),
    retry_min: Duration::from_millis(40),
    retry_max: Duration::from_secs(60),
};

#[tokio::test]
async fn a_silent_server_is_down_longer_each_time() {
    let test = async {
        let fixture = Fixture::start().await;
        let oldest = fixture.ask();
        let _mute = fixture.accept(1).await;
        fixture.pass(TIMING.request / 2);
        let bystander = fixture.ask();
        fixture.pass(TIMING.request);
        assert!(matches!(fault(oldest.await), LinkFault::TimedOut(_)));
        assert!(matches!(fault(bystander.await), LinkFault::TimedOut(_) | LinkFault::Lost(_)));

        assert!(matches!(fault(fixture.ask().await), LinkFault::Down(_)));
        fixture.pass(TIMING.retry_min);
        let trial = fixture.ask();
        let _mute = fixture.accept(1).await;
        fixture.pass(2 * TIMING.request);
        assert!(matches!(fault(trial.await), LinkFault::TimedOut(_)));
        fixture.pass(TIMING.retry_min);
        assert!(matches!(fault(fixture.ask().await), LinkFault::Down(_)));

        fixture.pass(TIMING.retry_min);
        let served = fixture.ask();
        let mut stream = fixture.accept(1).await;
        answer(&mut stream, b"7\r\n").await;
        assert!(matches!(served.await, Ok(Answer::Number(7))));
        assert!(health(&fixture.link).is_up());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn an_answer_that_keeps_coming_is_waited_for() {
    let test = async {
        let fixture = Fixture::start().await;
        let expect = Expect::Values { keys_max: 1 };
        let asked =
            fixture.link.request(Traffic::Bulk, expect, |out| out.text().extend(b"incr k 1\r\n"));
        let mut stream = fixture.accept(1).await;
        answer(&mut stream, b"VALUE k 0 400000\r\n").await;
        for _ in 0..40 {
            answer(&mut stream, &[b'x'; 10_000]).await;
            // The link reads the arrived bytes before the clock advances.
            tokio::time::sleep(Duration::from_millis(1)).await;
            fixture.pass(TIMING.request / 2);
        }
        answer(&mut stream, b"\r\nEND\r\n").await;
        assert!(matches!(asked.await, Ok(Answer::Values(values)) if values.len() == 1));
        assert!(health(&fixture.link).is_up());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_long_request_has_time_to_be_sent() {
    let test = async {
        let fixture = Fixture::start().await;
        // 1 MiB takes 8 s at the slowest speed that a link allows.
        let value = vec![b'x'; 1 << 20];
        let asked = fixture.link.request(Traffic::Bulk, Expect::Number, |out| {
            out.text().extend_from_slice(&value);
        });
        let (mut stream, _) = fixture.listener.accept().await.expect("a connection");
        fixture.pass(Duration::from_secs(8));
        stream.read_exact(&mut vec![0; value.len()]).await.expect("the request");
        answer(&mut stream, b"1\r\n").await;
        assert!(matches!(asked.await, Ok(Answer::Number(1))));

        let hung = fixture.link.request(Traffic::Bulk, Expect::Number, |out| {
            out.text().extend_from_slice(&value);
        });
        stream.read_exact(&mut vec![0; value.len()]).await.expect("the request");
        fixture.pass(Duration::from_secs(8) + 2 * TIMING.request);
        assert!(matches!(fault(hung.await), LinkFault::TimedOut(_)));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn an_answer_on_one_connection_keeps_the_other_up() {
    let test = async {
        let fixture = Fixture::start().await;
        let stuck = fixture.ask_on(Traffic::Bulk);
        let _mute = fixture.accept(1).await;
        fixture.pass(TIMING.request / 2);
        let served = fixture.ask();
        let mut stream = fixture.accept(1).await;
        answer(&mut stream, b"7\r\n").await;
        assert!(matches!(served.await, Ok(Answer::Number(7))));
        fixture.pass(TIMING.request * 3 / 4);
        assert!(matches!(fault(stuck.await), LinkFault::TimedOut(_)));
        assert!(health(&fixture.link).is_up());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn an_answer_of_another_kind_ends_the_connection() {
    let test = async {
        let fixture = Fixture::start().await;
        let asked = [fixture.ask(), fixture.ask(), fixture.ask()];
        let mut stream = fixture.accept(3).await;
        answer(&mut stream, b"1\r\nSTORED\r\n3\r\n").await;
        let [first, second, third] = asked;
        assert!(matches!(first.await, Ok(Answer::Number(1))));
        assert!(matches!(fault(second.await), LinkFault::Malformed(_)));
        assert!(matches!(fault(third.await), LinkFault::Malformed(_)));
        let next = fixture.ask();
        let mut stream = fixture.accept(1).await;
        answer(&mut stream, b"4\r\n").await;
        assert!(matches!(next.await, Ok(Answer::Number(4))));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_defect_costs_the_requests_under_way_only() {
    let test = async {
        let fixture = Fixture::start().await;
        let asked = fixture.ask();
        let mut stream = fixture.accept(1).await;
        let borrowed = health(&fixture.link).seize();
        answer(&mut stream, b"1\r\n").await;
        assert!(matches!(fault(asked.await), LinkFault::Lost(_)));
        drop(borrowed);
        let next = fixture.ask();
        let mut stream = fixture.accept(1).await;
        answer(&mut stream, b"2\r\n").await;
        assert!(matches!(next.await, Ok(Answer::Number(2))));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn requests_of_a_refused_connection_take_the_other_one() {
    let test = async {
        let fixture = Fixture::start().await;
        let mut stream = fixture.connected(Traffic::Interactive).await;
        let Fixture { listener, link, .. } = fixture;
        drop(listener);
        let ask = || {
            link.request(Traffic::Bulk, Expect::Number, |out| out.text().extend(b"incr k 1\r\n"))
        };
        for round in 0..3 {
            let asked = [ask(), ask()];
            read_requests(&mut stream, 2).await;
            answer(&mut stream, b"2\r\n3\r\n").await;
            let [second, third] = asked;
            assert!(matches!(second.await, Ok(Answer::Number(2))), "{round}");
            assert!(matches!(third.await, Ok(Answer::Number(3))), "{round}");
            assert!(bulk(&link).is_refused(), "{round}");
        }
        assert!(health(&link).is_up());
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_handed_over_request_has_the_whole_time_limit() {
    let test = async {
        let fixture = Fixture::start().await;
        let mut stream = fixture.connected(Traffic::Interactive).await;
        let Fixture { listener, link, clock } = fixture;
        drop(listener);
        let asked =
            link.request(Traffic::Bulk, Expect::Number, |out| out.text().extend(b"incr k 1\r\n"));
        clock.advance((TIMING.request * 2).into());
        read_requests(&mut stream, 1).await;
        clock.advance((TIMING.request / 2).into());
        answer(&mut stream, b"2\r\n").await;
        assert!(matches!(asked.await, Ok(Answer::Number(2))));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_full_server_is_retried_once_in_a_while() {
    let test = async {
        let fixture = Fixture::start().await;
        fixture.link.set_timing(Timing { retry_max: Duration::from_millis(50), ..TIMING });
        let mut stream = fixture.connected(Traffic::Interactive).await;
        let refused = fixture.ask_on(Traffic::Bulk);
        let mut closed = fixture.accept(1).await;
        answer(&mut closed, b"ERROR Too many open connections\r\n").await;
        drop(closed);
        assert!(matches!(fault(refused.await), LinkFault::TooManyClients));
        let next = fixture.ask_on(Traffic::Bulk);
        read_requests(&mut stream, 1).await;
        let (mut second, _) = fixture.listener.accept().await.expect("a second attempt");
        let mut greeting = [0; 4];
        second.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(&greeting, b"mn\r\n");
        answer(&mut second, b"MN\r\n").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(bulk(&fixture.link).is_refused(), "a request is under way on the other one");
        answer(&mut stream, b"2\r\n").await;
        assert!(matches!(next.await, Ok(Answer::Number(2))));
        while bulk(&fixture.link).is_refused() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let again = fixture.ask_on(Traffic::Bulk);
        read_requests(&mut second, 1).await;
        answer(&mut second, b"3\r\n").await;
        assert!(matches!(again.await, Ok(Answer::Number(3))));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_refused_connection_is_probed_over_the_other() {
    let test = async {
        let fixture = Fixture::start().await;
        let mut stream = fixture.connected(Traffic::Bulk).await;
        let refused = fixture.ask();
        let mut closed = fixture.accept(1).await;
        answer(&mut closed, b"ERROR Too many open connections\r\n").await;
        drop(closed);
        assert!(matches!(fault(refused.await), LinkFault::TooManyClients));
        let probed = fixture.link.probe();
        let mut greeting = [0; 4];
        stream.read_exact(&mut greeting).await.expect("a probe");
        answer(&mut stream, b"MN\r\n").await;
        assert!(matches!(probed.await, Ok(Answer::Done)));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_request_moves_to_a_link_that_ends() {
    let test = async {
        let fixture = Fixture::start().await;
        let mut stream = fixture.connected(Traffic::Interactive).await;
        let Fixture { listener, link, .. } = fixture;
        drop(listener);
        let asked =
            link.request(Traffic::Bulk, Expect::Number, |out| out.text().extend(b"incr k 1\r\n"));
        link.retire();
        read_requests(&mut stream, 1).await;
        answer(&mut stream, b"2\r\n").await;
        assert!(matches!(asked.await, Ok(Answer::Number(2))));
        let closed = stream.read(&mut [0]).await;
        assert_eq!(closed.expect("the link closes the connection"), 0);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_request_on_an_ended_link_fails_at_once() {
    let test = async {
        let fixture = Fixture::start().await;
        let mut stream = fixture.connected(Traffic::Interactive).await;
        fixture.link.retire();
        assert_eq!(stream.read(&mut [0]).await.expect("the link closes the connection"), 0);
        for traffic in [Traffic::Interactive, Traffic::Bulk] {
            assert!(matches!(fault(fixture.ask_on(traffic).await), LinkFault::Out));
        }
        assert!(matches!(fault(fixture.link.probe().await), LinkFault::Out));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_request_of_a_returning_connection_does_not_wait_for_the_other() {
    let test = async {
        let fixture = Fixture::start().await;
        fixture.link.set_timing(Timing { retry_max: Duration::from_millis(50), ..TIMING });
        let mut stream = fixture.connected(Traffic::Interactive).await;
        let refused = fixture.ask_on(Traffic::Bulk);
        let mut closed = fixture.accept(1).await;
        answer(&mut closed, b"ERROR Too many open connections\r\n").await;
        drop(closed);
        assert!(matches!(fault(refused.await), LinkFault::TooManyClients));
        let lost = fixture.ask();
        read_requests(&mut stream, 1).await;
        let (mut second, _) = fixture.listener.accept().await.expect("a second attempt");
        second.read_exact(&mut [0; 4]).await.expect("a greeting");
        answer(&mut second, b"MN\r\n").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        drop(stream);
        assert!(matches!(fault(lost.await), LinkFault::Lost(_)));
        // The other connection is closed now, and opens again with a request that gets no answer.
        let (_bulk, _busy) = (fixture.ask_on(Traffic::Bulk), fixture.ask());
        let mut stream = fixture.accept(1).await;
        let sent = async {
            tokio::select! {
                () = read_requests(&mut stream, 1) => {}
                () = read_requests(&mut second, 1) => {}
            }
        };
        tokio::time::timeout(Duration::from_secs(30), sent).await.expect("the request is sent");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn a_server_without_meta_commands_answers_probes() {
    let test = async {
        let fixture = Fixture::start().await;
        let probed = fixture.link.probe();
        let (mut stream, _) = fixture.listener.accept().await.expect("a connection");
        stream.read_exact(&mut [0; 4]).await.expect("a probe");
        answer(&mut stream, b"ERROR\r\n").await;
        assert!(matches!(probed.await, Ok(Answer::Done)));
        let next = fixture.ask();
        read_requests(&mut stream, 1).await;
        answer(&mut stream, b"2\r\n").await;
        assert!(matches!(next.await, Ok(Answer::Number(2))));
    };
    LocalSet::new().run_until(test).await;
}
