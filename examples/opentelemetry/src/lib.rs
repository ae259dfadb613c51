//! The waits and holds of locks as spans of OpenTelemetry: children of the span in which the lock was acquired.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{Layer as _, Registry};

/// A subscriber that exports spans: those of the program from INFO on, those of Leasehold from DEBUG on. Shut the provider down
/// before the program ends. A thread of its own exports them: some spans end on the thread that renews leases, which must not wait
/// for a collector.
pub fn exporting(
    exporter: impl SpanExporter + 'static,
) -> (impl Subscriber + Send + Sync, SdkTracerProvider) {
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let filter = Targets::new().with_default(LevelFilter::INFO).with_target("leasehold", LevelFilter::DEBUG);
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop")).with_filter(filter);
    (Registry::default().with(spans), provider)
}
