//! The metrics of locks, for Prometheus to scrape.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

/// The upper bounds of the buckets in seconds: from a lock that is free to a wait that its user notices.
pub const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 2.0, 10.0, 60.0];

/// Installs the recorder of the process, before any client connects.
///
/// # Errors
///
/// If there is a recorder already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    PrometheusBuilder::new().set_buckets(BUCKETS)?.install_recorder()
}

/// Serves `/metrics`, until this is dropped.
///
/// # Errors
///
/// An error of the socket.
pub async fn serve(listener: TcpListener, metrics: PrometheusHandle) -> std::io::Result<()> {
    let scraped = metrics.clone();
    let routes = Router::new().route("/metrics", get(move || async move { scraped.render() }));
    // What histograms have recorded is summed up by each scrape. Without one it would fill the memory.
    let upkeep = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            metrics.run_upkeep();
        }
    };
    tokio::select! {
        served = async { axum::serve(listener, routes).await } => served,
        () = upkeep => Ok(()),
    }
}
