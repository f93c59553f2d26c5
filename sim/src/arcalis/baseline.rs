//! The services without an engine: one core receives, does the RPC layer in software, handles and sends, one request
//! after another. There is nothing to schedule, so this needs no event loop.

use std::collections::VecDeque;

use super::Arcalis;
use super::counts::{Counts, Stage};
use crate::study::{Extent, Sample};
use crate::{Picos, Streams};

/// One replication: the requests are those that the engine's model sees.
pub(super) fn sample(model: &Arcalis, streams: &Streams, extent: Extent) -> Sample {
    let spec = &model.spec;
    let mut mix = streams.named("mix");
    let (mut now, mut counts) = (Picos(0), Counts::default());
    let mut responses = vec![Vec::new(); spec.mix.len()];
    // When those that are under way came.
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
