//! The routes of the service.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::shop::{Outcome, Shop, ShopError};

pub(crate) fn routes(shop: Arc<Shop>) -> Router {
    Router::new()
        .route("/ready", get(ready))
        .route("/campaigns/{campaign}/coupons/{user}", post(issue))
        .with_state(shop)
}

/// Whether the server of the locks replies.
async fn ready(State(shop): State<Arc<Shop>>) -> Response {
    match shop.client().ping().await {
        Ok(_) => "ready".into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

async fn issue(
    State(shop): State<Arc<Shop>>,
    Path((campaign, user)): Path<(String, String)>,
) -> Result<Response, ShopError> {
    // The server drops this function when the caller hangs up. Issuing is a task of its own, so that it is not ended between
    // the request that writes the winner and its reply.
    let issuing = tokio::spawn(async move { shop.issue(&campaign, &user).await });
    match issuing.await {
        Ok(outcome) => Ok(match outcome? {
            Outcome::Coupon(number) => format!("coupon {number}").into_response(),
            Outcome::SoldOut => (StatusCode::GONE, "sold out").into_response(),
        }),
        Err(_) => Ok(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
    }
}

impl IntoResponse for ShopError {
    fn into_response(self) -> Response {
        let retry = match &self {
            // After a loss, too: a user who has a coupon gets the same one again.
            Self::Lock(error) => error.is_transient() || error.is_lost(),
            Self::Store(_) => true,
        };
        if retry {
            let after = [(header::RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, after, "try again").into_response()
        } else {
            // What is wrong is for the log, not for callers.
            eprintln!("{self}");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
