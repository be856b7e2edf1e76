//! Responses to requests, by path.

use std::sync::Arc;

use ekiden_proto::event::CongestionStatus;
use hyper::body::Incoming;
use hyper::header::{ALLOW, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::{Method, Request, StatusCode};
use serde::Serialize;

use super::access::{AdminAuth, AdminRefusal};
use super::connections::ConnectionSlot;
use super::responses::{AdminResponse, file, full_response, stream_response};
use super::snapshot::WorkerHandles;
use super::stream::SnapshotStream;
use crate::events::metrics::ScrapeData;
use crate::ingress::services::Services;
use crate::path::selector::ChoiceView;
use crate::pump::PipeCounts;
use crate::status::fleet::FleetSummary;
use crate::status::{AccountView, InterfaceView, LaneView, PoolView, SessionView};
use crate::worker::{StatusQuery, WorkerStatus};

const TEXT_PLAIN: &str = "text/plain; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const NOT_FOUND_TEXT: &str = "404: the paths are / (the dashboard), /metrics, /api/sessions, /api/paths, /api/fleet, \
                              /api/events and /api/stream\n";
const TOO_MANY_READERS_TEXT: &str = "503: too many stream clients; retry later, or read /api/sessions\n";

/// Path that reports whether other paths require a token, so that the dashboard need not try.
const ACCESS_PATH: &str = "/api/access";

/// The data sources of the responses.
pub(super) struct AdminHandler {
    pub services: Arc<Services>,
    pub workers: WorkerHandles,
    pub auth: AdminAuth,
    pub stream: Arc<SnapshotStream>,
}

/// The response of `/api/sessions`.
#[derive(Serialize)]
struct SessionsResponse {
    version: &'static str,
    pipes_open: usize,
    pipes_idle: usize,
    pipe_fallbacks: u64,
    sessions: Vec<SessionView>,
    pools: Vec<PoolView>,
    interfaces: Vec<InterfaceView>,
    accounts: Vec<AccountView>,
    lanes: Vec<LaneView>,
    congestion: Vec<CongestionStatus>,
    fleet: Option<FleetSummary>,
    choices: Vec<ChoiceView>,
}

impl AdminHandler {
    /// Handles a request of the connection that has `slot`.
    pub async fn handle(&self, request: &Request<Incoming>, slot: &ConnectionSlot) -> AdminResponse {
        let (head, path) = (request.headers(), request.uri().path());
        let file = file(path);
        let access = match file {
            None if path != ACCESS_PATH => self.auth.authorize(head).await.map(|()| slot.mark_proven()),
            _ => self.auth.check_page(head),
        };
        if let Err(refusal) = access {
            return refusal_response(refusal);
        }
        if request.method() != Method::GET {
            let response = full_response(StatusCode::METHOD_NOT_ALLOWED, TEXT_PLAIN, "405: GET only\n");
            return with_header(response, ALLOW, "GET");
        }
        match file {
            Some((kind, text)) => full_response(StatusCode::OK, kind, text),
            None => self.route(path).await,
        }
    }

    async fn route(&self, path: &str) -> AdminResponse {
        match path {
            "/metrics" => self.metrics().await,
            "/api/sessions" => self.sessions().await,
            "/api/paths" => json_response(&self.services.estimates.views()),
            "/api/fleet" => json_response(&self.services.fleet.view()),
            "/api/upgrade" => json_response(&self.services.upgrades.view()),
            ACCESS_PATH => json_response(&self.auth),
            "/api/events" => json_response(&self.services.events.recent.events(usize::MAX)),
            "/api/stream" => match self.stream.subscribe() {
                Some(reader) => stream_response(reader),
                None => with_header(
                    full_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_PLAIN, TOO_MANY_READERS_TEXT),
                    RETRY_AFTER,
                    "10",
                ),
            },
            _ => full_response(StatusCode::NOT_FOUND, TEXT_PLAIN, NOT_FOUND_TEXT),
        }
    }

    async fn metrics(&self) -> AdminResponse {
        let Services { events, shared_interfaces: shares, fleet, accounts, .. } = &*self.services;
        let metrics = &events.metrics;
        metrics.rules.refresh().await;
        let data = ScrapeData {
            workers: self.workers.counts().await,
            interfaces: shares.views(),
            accounts: accounts.views(),
            fleet: fleet.view(),
        };
        full_response(StatusCode::OK, OPEN_METRICS, metrics.encode(data))
    }

    async fn sessions(&self) -> AdminResponse {
        let WorkerStatus { mut sessions, pipes, congestion, .. } = self.workers.describe(StatusQuery::All).await;
        sessions.sort_by_key(|session| session.session);
        let PipeCounts { open: pipes_open, idle: pipes_idle, fallbacks: pipe_fallbacks } = pipes;
        let (pools, interfaces) = (self.services.pools.views(), self.services.shared_interfaces.views());
        let (version, lanes) = (env!("CARGO_PKG_VERSION"), self.services.lanes.views());
        let response = SessionsResponse {
            version,
            pipes_open,
            pipes_idle,
            pipe_fallbacks,
            sessions,
            pools,
            interfaces,
            accounts: self.services.accounts.views(),
            lanes,
            congestion,
            fleet: self.services.fleet.view().map(|view| view.summary()),
            choices: self.services.path_selector.views(),
        };
        json_response(&response)
    }
}

fn refusal_response(refusal: AdminRefusal) -> AdminResponse {
    let response = full_response(refusal.status(), TEXT_PLAIN, refusal.message());
    match refusal {
        AdminRefusal::UnknownHost | AdminRefusal::CrossOrigin => response,
        AdminRefusal::MissingToken | AdminRefusal::WrongToken => {
            with_header(response, WWW_AUTHENTICATE, "Bearer realm=\"ekiden\"")
        }
    }
}

fn with_header(mut response: AdminResponse, name: hyper::header::HeaderName, value: &'static str) -> AdminResponse {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

fn json_response(body: &impl Serialize) -> AdminResponse {
    match serde_json::to_string(body) {
        Ok(json) => full_response(StatusCode::OK, "application/json", json + "\n"),
        Err(error) => full_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_PLAIN, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use super::*;
    use crate::config::congestion::Telemetry;
    use crate::path::selector::CandidateView;
    use crate::status::fleet::FleetView;

    const PAGE: &str = include_str!("../../../../docs/api.md");

    /// The documented fields below `path`.
    fn documented(path: &str) -> BTreeSet<String> {
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.strip_prefix(path));
        rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
    }

    fn fields(of: &impl Serialize) -> BTreeSet<String> {
        serde_json::to_value(of).unwrap().as_object().unwrap().keys().cloned().collect()
    }

    /// tests/metrics/schema.rs compares the other fields with answers of a running relay.
    #[test]
    fn api_page_documents_lane_telemetry_fleet_and_choice_fields() {
        let lane = LaneView {
            listener: String::new(),
            by: String::new(),
            dialled: true,
            stands: true,
            seconds: 0.0,
            waiting: 0,
            packets_sent: 0,
            packets_received: 0,
            bytes_sent: 0,
            bytes_received: 0,
            packets_dropped: 0,
            dropped_for: BTreeMap::new(),
        };
        assert_eq!(fields(&lane), documented("lanes[]."));
        let telemetry = Telemetry {
            window: 0,
            loss_window: 0,
            delay_window: 0,
            base_rtt: Duration::ZERO,
            queued: 0,
            gamma: 0,
            rounds: 0,
            losses: 0,
            timeouts: 0,
        };
        assert_eq!(fields(&telemetry), documented("SECTION.told."));
        assert_eq!(fields(&FleetView::for_test(Vec::new()).summary()), documented("fleet."));
        let candidate =
            CandidateView { path: String::new(), predicted_seconds: 0.0, rate: 0.0, confidence: 0.0, out: false };
        let choice = ChoiceView {
            prefix: "192.0.2.0/24".parse().unwrap(),
            likely_bytes: 0,
            likely_direction: "down",
            path: String::new(),
            candidates: Vec::new(),
        };
        let below = fields(&candidate).into_iter().map(|field| format!("candidates[].{field}"));
        assert_eq!(fields(&choice).into_iter().chain(below).collect::<BTreeSet<_>>(), documented("choices[]."));
    }
}
