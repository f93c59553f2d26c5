//! A compression service that forwards its jobs to an honest service and falsifies the answers, in the manner that the
//! test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use api::tonic::transport::server::TcpIncoming;
use api::tonic::transport::{Channel, Server};
use api::tonic::{Request, Response, Status, async_trait};
use api::v1::compression_client::CompressionClient;
use api::v1::compression_server::{Compression, CompressionServer};
use api::v1::run_response::Outcome;
use api::v1::{DescribeRequest, DescribeResponse, EchoRequest, EchoResponse, Op, RunManyRequest};
use api::v1::{RunManyResponse, RunRequest, RunResponse};
use rebate_tests::TIMEOUT;
use tokio::sync::oneshot;
use units::Prng;

/// The manner in which the service falsifies its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Returns random bytes, after `from` true answers.
    Garbage { from: u64 },
    /// Changes one bit in one of `one_in` answers, chosen at random.
    Flips { one_in: u64 },
    /// Returns wrong bytes for every value that it decompresses.
    Misreads,
    /// Never answers.
    Hangs,
    /// Returns random bytes, and never answers every third job.
    GarbageAndHangs,
}

/// The service. It runs on a separate thread until this value is dropped.
pub(crate) struct Liar {
    address: String,
    jobs: Arc<AtomicU64>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    /// Starts the service in front of the honest service at this address.
    pub(crate) fn start(honest: &str, manner: Manner) -> Self {
        let (up, is_up) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let (jobs, honest) = (Arc::new(AtomicU64::new(0)), honest.to_owned());
        let counted = Arc::clone(&jobs);
        let thread = std::thread::spawn(move || {
            let executor = tokio::runtime::Builder::new_current_thread().enable_all().build();
            executor.expect("an executor").block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                up.send(listener.local_addr().expect("an address")).expect("someone waits");
                let address = honest.parse().expect("an address");
                let channel = api::wire::channel(&address, TIMEOUT).expect("an address");
                let honest = CompressionClient::new(channel);
                let service = CompressionServer::new(Answers { honest, manner, jobs: counted });
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                let server = Server::builder().add_service(service);
                tokio::select! {
                    _ = server.serve_with_incoming(incoming) => {}
                    _ = ended => {}
                }
            });
        });
        let address = is_up.recv().expect("the service listens").to_string();
        Self { address, jobs, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the number of jobs so far.
    pub(crate) fn jobs(&self) -> u64 {
        self.jobs.load(Ordering::SeqCst)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Answers {
    honest: CompressionClient<Channel>,
    manner: Manner,
    jobs: Arc<AtomicU64>,
}

impl Answers {
    /// Returns the falsified answer, or none for a job that is never answered.
    fn treat(&self, op: Op, mut answer: RunResponse) -> Option<RunResponse> {
        let job = self.jobs.fetch_add(1, Ordering::SeqCst);
        let mut draws = Prng::new(job);
        let is_done = answer.outcome() == Outcome::Done && !answer.payload.is_empty();
        let mut bytes = answer.payload.to_vec();
        match self.manner {
            Manner::Hangs => return None,
            Manner::GarbageAndHangs if job % 3 == 2 => return None,
            Manner::Garbage { from } if job < from => {}
            Manner::Garbage { .. } | Manner::GarbageAndHangs => draws.fill(&mut bytes),
            Manner::Flips { one_in } if is_done && draws.below(one_in) == 0 => {
                let index = draws.below(bytes.len() as u64) as usize;
                bytes[index] ^= 1 << draws.below(8);
            }
            Manner::Misreads if is_done && op == Op::Decompress => bytes[0] ^= 1,
            Manner::Flips { .. } | Manner::Misreads => {}
        }
        answer.payload = bytes.into();
        Some(answer)
    }
}

#[async_trait]
impl Compression for Answers {
    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let request = request.into_inner();
        let op = request.op();
        let answer = self.honest.clone().run(request).await?.into_inner();
        match self.treat(op, answer) {
            Some(answer) => Ok(Response::new(answer)),
            None => std::future::pending().await,
        }
    }

    async fn run_many(
        &self,
        request: Request<RunManyRequest>,
    ) -> Result<Response<RunManyResponse>, Status> {
        let request = request.into_inner();
        let ops: Vec<Op> = request.jobs.iter().map(RunRequest::op).collect();
        let answers = self.honest.clone().run_many(request).await?.into_inner().answers;
        let treated = ops.into_iter().zip(answers).map(|(op, answer)| self.treat(op, answer));
        match treated.collect() {
            Some(answers) => Ok(Response::new(RunManyResponse { answers })),
            None => std::future::pending().await,
        }
    }

    async fn describe(
        &self,
        request: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        self.honest.clone().describe(request.into_inner()).await
    }

    async fn echo(&self, request: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        self.honest.clone().echo(request.into_inner()).await
    }
}
