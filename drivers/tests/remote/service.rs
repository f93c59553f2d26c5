//! A compression service in this process. It runs jobs on software, or misbehaves as the test says.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::thread::JoinHandle;

use api::Address;
use api::v1::compression_server::{Compression, CompressionServer};
use api::v1::run_response::Outcome as Answer;
use api::v1::{self, DescribeRequest, DescribeResponse, EchoRequest, EchoResponse};
use api::v1::{RunManyRequest, RunManyResponse, RunRequest, RunResponse};
use bytes::Bytes;
use device::{Codec, Device, DeviceError, Dialect, Level, Outcome, Queue, Software, Task};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::support;

/// The service's treatment of every call.
#[derive(Clone, Debug)]
pub(crate) enum Manner {
    Honest,
    Refuse(Status),
    Say(RunResponse),
    Hang,
    /// The service does not know calls with several jobs, like an older service.
    OneByOne,
    /// The last of several answers is missing.
    OneTooFew,
    /// The result of a call is its `grpc-timeout`.
    TellTimeout,
}

/// The service, on its own thread. Dropping it ends its connections.
pub(crate) struct Service {
    pub(crate) address: Address,
    /// The number of jobs in flight.
    pub(crate) in_flight: Arc<AtomicUsize>,
    /// The number of calls with several jobs so far.
    pub(crate) shared: Arc<AtomicUsize>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    pub(crate) fn start(manner: Manner) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), manner)
    }

    pub(crate) fn start_at(address: Address, manner: Manner) -> Self {
        let (up, is_up) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let in_flight = Arc::new(AtomicUsize::new(0));
        let shared = Arc::new(AtomicUsize::new(0));
        let (in_flight_counter, shared_counter) = (Arc::clone(&in_flight), Arc::clone(&shared));
        let service = Answers { manner, in_flight: in_flight_counter, shared: shared_counter };
        let thread = std::thread::spawn(move || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let executor = builder.enable_all().build().expect("an executor");
            executor.block_on(async {
                tokio::select! {
                    _ = serve(address, service, up) => {}
                    _ = ended => {}
                }
            });
        });
        let address = is_up.recv().expect("the service listens");
        Self { address, in_flight, shared, end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the service did not panic");
        }
    }
}

async fn serve(address: Address, service: Answers, up: std::sync::mpsc::Sender<Address>) {
    let limit = 1 << 30;
    let service = CompressionServer::new(service).max_decoding_message_size(limit);
    let server = Server::builder().add_service(service);
    match &address {
        Address::Tcp(text) => {
            let listener = tokio::net::TcpListener::bind(text).await.expect("a free port");
            let local = listener.local_addr().expect("an address").to_string();
            up.send(Address::Tcp(local)).expect("someone waits");
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            server.serve_with_incoming(incoming).await
        }
        Address::Tls(_) => unreachable!("these tests serve without TLS"),
        Address::Unix(path) => {
            let listener = tokio::net::UnixListener::bind(path).expect("a free path");
            up.send(address.clone()).expect("someone waits");
            server.serve_with_incoming(UnixListenerStream::new(listener)).await
        }
    }
    .expect("serves until it is cut");
}

struct Answers {
    manner: Manner,
    in_flight: Arc<AtomicUsize>,
    shared: Arc<AtomicUsize>,
}

struct InFlight(Arc<AtomicUsize>, usize);

impl InFlight {
    fn count(in_flight: &Arc<AtomicUsize>, jobs: usize) -> Self {
        in_flight.fetch_add(jobs, Ordering::SeqCst);
        Self(Arc::clone(in_flight), jobs)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

#[tonic::async_trait]
impl Compression for Answers {
    async fn run(&self, request: Request<RunRequest>) -> Result<Response<RunResponse>, Status> {
        let _in_flight = InFlight::count(&self.in_flight, 1);
        assert!(request.metadata().contains_key("grpc-timeout"), "every call has a time limit");
        match &self.manner {
            Manner::Honest | Manner::OneByOne | Manner::OneTooFew => {
                Ok(Response::new(run(request.into_inner())))
            }
            Manner::Refuse(status) => Err(status.clone()),
            Manner::Say(response) => Ok(Response::new(response.clone())),
            Manner::Hang => std::future::pending().await,
            Manner::TellTimeout => {
                let header = request.metadata().get("grpc-timeout").expect("seen above");
                let payload = Bytes::copy_from_slice(header.as_bytes());
                let mut response = RunResponse { payload, ..RunResponse::default() };
                response.set_outcome(Answer::Done);
                Ok(Response::new(response))
            }
        }
    }

    async fn run_many(
        &self,
        request: Request<RunManyRequest>,
    ) -> Result<Response<RunManyResponse>, Status> {
        assert!(request.metadata().contains_key("grpc-timeout"), "every call has a time limit");
        let jobs = request.into_inner().jobs;
        assert!(jobs.len() > 1, "a job that is alone goes alone");
        let results: usize = jobs.iter().map(|job| job.output_bytes as usize).sum();
        assert!(results <= api::wire::JOBS_BYTES_MAX, "no service takes such a call");
        self.shared.fetch_add(1, Ordering::SeqCst);
        let _in_flight = InFlight::count(&self.in_flight, jobs.len());
        let mut answers: Vec<RunResponse> = match &self.manner {
            Manner::OneByOne => return Err(Status::unimplemented("RunMany")),
            Manner::Refuse(status) => return Err(status.clone()),
            Manner::Hang => std::future::pending().await,
            Manner::Say(response) => vec![response.clone(); jobs.len()],
            _ => jobs.into_iter().map(run).collect(),
        };
        if matches!(self.manner, Manner::OneTooFew) {
            answers.pop();
        }
        Ok(Response::new(RunManyResponse { answers }))
    }

    async fn describe(
        &self,
        _: Request<DescribeRequest>,
    ) -> Result<Response<DescribeResponse>, Status> {
        Ok(Response::new(DescribeResponse { devices: Vec::new(), work_bytes_max: 7 }))
    }

    async fn echo(&self, _: Request<EchoRequest>) -> Result<Response<EchoResponse>, Status> {
        Err(Status::unimplemented("Echo"))
    }
}

thread_local! {
    static SOFTWARE: RefCell<Box<dyn Queue>> = {
        let software = Software::new(drivers::ENGINES);
        RefCell::new(software.open_queue(Waker::noop().clone()).expect("software opens"))
    };
}

fn run(request: RunRequest) -> RunResponse {
    let output_bytes = request.output_bytes as usize;
    let codec = match request.codec() {
        v1::Codec::Deflate => Codec::Deflate,
        v1::Codec::Zstd => Codec::Zstd,
        v1::Codec::Lz4 => Codec::Lz4,
        other => panic!("{other:?} is no codec of a job"),
    };
    let window_log2 = (request.window_log2 != 0).then_some(request.window_log2 as u8);
    let dialect = Dialect { codec, window_log2 };
    let level = match request.level() {
        v1::Level::Default => Level::Default,
        v1::Level::Fast => Level::Fast,
        v1::Level::High => Level::High,
    };
    let task = match request.op() {
        v1::Op::Compress => Task::Compress { dialect, level },
        v1::Op::Decompress => Task::Decompress { dialect, original_bytes: output_bytes },
        op => panic!("{op:?} is no op of this service"),
    };
    let job = support::job(task, request.payload, output_bytes);
    let completion = SOFTWARE.with_borrow_mut(|queue| support::run(queue.as_mut(), job));
    let mut response = RunResponse { service_ns: 5, queueing_ns: 2, ..RunResponse::default() };
    match completion.outcome {
        Outcome::Done { output_bytes: made } if made <= output_bytes => {
            response.set_outcome(Answer::Done);
            response.payload = completion.job.output.freeze(0..made);
        }
        Outcome::Done { .. } | Outcome::DoesNotFit => response.set_outcome(Answer::DoesNotFit),
        Outcome::Failed(DeviceError::InvalidInput(_)) => {
            response.set_outcome(Answer::InvalidInput);
        }
        Outcome::Failed(_) => response.set_outcome(Answer::Fault),
    }
    response
}
