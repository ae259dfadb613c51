//! The spans that are exported.

use std::time::Duration;

use leasehold::Client;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use tracing::Instrument as _;

fn one<'a>(spans: &'a [SpanData], name: &str) -> &'a SpanData {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap_or_else(|| panic!("there is no {name}: {spans:#?}"));
    assert!(found.next().is_none(), "there is one {name}: {spans:#?}");
    span
}

#[tokio::test]
async fn a_wait_and_a_hold_are_children_of_the_span_of_their_caller() {
    let exporter = InMemorySpanExporter::default();
    let (subscriber, provider) = opentelemetry_example::exporting(exporter.clone());
    tracing::subscriber::set_global_default(subscriber).expect("there is none yet");
    let client = Client::connect("memory:").await.expect("it needs no server");
    let lock = client.lock("coupon:42");

    let first = lock.acquire().await.expect("it is free");
    let bought = async {
        let guard = lock.acquire().await.expect("it is free later");
        guard.release().await.expect("it is held");
    };
    let bought = bought.instrument(tracing::info_span!("buy"));
    let release = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        first.release().await.expect("it is held");
    };
    tokio::join!(bought, release);
    provider.force_flush().expect("nothing fails");

    let spans = exporter.get_finished_spans().expect("it is in memory");
    let buy = one(&spans, "buy");
    let of_buy: Vec<_> =
        spans.iter().filter(|span| span.parent_span_id == buy.span_context.span_id()).cloned().collect();
    let [waited, held] = ["wait", "hold"].map(|name| one(&of_buy, name));
    for span in [waited, held] {
        assert_eq!(span.span_context.trace_id(), buy.span_context.trace_id());
        let lock = span.attributes.iter().find(|attribute| attribute.key.as_str() == "lock");
        assert_eq!(lock.expect("its lock").value.as_str(), "coupon:42");
    }
    let length = waited.end_time.duration_since(waited.start_time).expect("in this order");
    assert!(length >= Duration::from_millis(40), "{length:?}");
    assert!(waited.start_time <= held.start_time && waited.end_time <= held.end_time, "{waited:?} {held:?}");
    // The other hold has no span around it.
    assert_eq!(spans.iter().filter(|span| span.name == "hold").count(), 2, "{spans:#?}");
}
