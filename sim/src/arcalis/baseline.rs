//! The services without an engine. One core receives, runs the RPC layer in software, handles and sends one request
//! after another. Nothing has to be scheduled, so there is no event loop.

use std::collections::VecDeque;

use super::Arcalis;
use super::counts::{Counts, Stage};
use crate::study::{Extent, Sample};
use crate::{Picos, Streams};

/// Simulates one replication. The requests are the same as in the model with an engine.
pub(super) fn sample(model: &Arcalis, streams: &Streams, extent: Extent) -> Sample {
    let spec = &model.spec;
    let mut mix = streams.named("mix");
    let (mut now, mut counts) = (Picos(0), Counts::default());
    let mut responses = vec![Vec::new(); spec.mix.len()];
    // The arrival times of the requests in flight.
    let mut came: VecDeque<Picos> = (0..spec.window).map(|_| Picos(0)).collect();
    let net = Picos::from_ns(spec.net.receive_ns + spec.net.send_ns);
    loop {
        let more = match extent {
            Extent::Requests(count) => counts.done < count,
            Extent::WindowPs(window) => now < window,
        };
        let Some(since) = came.pop_front().filter(|_| more) else { break };
        let function = model.next(&mut mix);
        let parts = [
            (Stage::Net, net),
            (Stage::Software, Picos::from_ns(spec.mix[function].software_ns)),
            (Stage::AppHandler, model.handler(function)),
            (Stage::AppBytes, model.bytes(function)),
        ];
        for (stage, time) in parts {
            counts.add(stage, time);
            now += time;
        }
        counts.done += 1;
        responses[function].push(now.since(since).0);
        came.push_back(now);
    }
    Sample { responses, facts: counts.facts(now, 0.0), events: counts.done, duration: now }
}
