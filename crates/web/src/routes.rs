//! The paths, and what answers each.

use crate::console::Console;
use crate::console::assets;
use crate::figures::{Figures, Source};
use crate::guard::{Secret, harden, is_own_page, names_this_machine};
use crate::health::{self, Question};
use crate::history::History;
use crate::limits::{BODY_BYTES_MAX, BODY_TIME_MAX};
use crate::metrics;
use crate::serve::{Connection, Settings};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the handlers share.
pub(crate) struct App {
    pub source: Arc<dyn Source>,
    pub history: Arc<History>,
    pub console: Console,
    /// The figures of the last second.
    pub last: Mutex<Arc<Figures>>,
    pub has_tls: bool,
    pub version: &'static str,
    /// `Some(None)`: it is required, and cannot be checked.
    token: Option<Option<Secret>>,
}

impl App {
    pub fn new(settings: Settings, source: Arc<dyn Source>, history: Arc<History>) -> App {
        App {
            console: Console::new(&settings.key),
            has_tls: settings.tls.is_some(),
            token: settings.token.as_deref().map(Secret::new),
            last: Mutex::default(),
            version: settings.version,
            source,
            history,
        }
    }

    /// Takes the figures of this second.
    pub fn sample(&self, unix_ms: u64) {
        let figures = Arc::new(self.source.figures());
        self.history.add(&figures, unix_ms);
        *self.last.lock() = figures;
        self.console.forget_old(&*self.source);
    }
}

pub(crate) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics_page))
        // HAProxy's default check is OPTIONS /.
        .route("/", get(assets::page).options(primary))
        .route("/console.js", get(assets::script))
        .route("/console.css", get(assets::style))
        .route("/api/login", post(crate::console::login))
        .route("/api/logout", post(crate::console::logout))
        // A browser asks for it by itself.
        .route("/favicon.ico", get(|| async { StatusCode::NO_CONTENT }))
        .route("/api/session", get(crate::console::session))
        .route("/api/state", get(crate::console::state))
        .route("/api/signal", post(crate::console::signal));
    for path in [
        "/live",
        "/liveness",
        "/ready",
        "/readiness",
        "/health",
        "/primary",
        "/master",
        "/leader",
        "/read-write",
        "/replica",
        "/standby",
        "/read-only",
    ] {
        router = router.route(path, any(health_page));
    }
    router.fallback(not_found).layer(from_fn_with_state(app.clone(), guard)).with_state(app)
}

/// Before and after every handler.
async fn guard(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        connection.asked();
    }
    let path = request.uri().path();
    let is_health = Question::of(path).is_some() || (path == "/" && request.method() == Method::OPTIONS);
    let mut response = if !is_health && !app.has_tls && !names_this_machine(request.headers()) {
        let text = "this server answers as localhost or by its address only; a proxy has to send such a Host";
        (StatusCode::MISDIRECTED_REQUEST, text).into_response()
    } else if request.method() != Method::GET && !is_health && !is_own_page(request.headers()) {
        (StatusCode::FORBIDDEN, "the request comes from another page").into_response()
    } else {
        next.run(request).await
    };
    harden(&mut response);
    response
}

async fn metrics_page(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Some(token) = &app.token
        && !token.as_ref().is_some_and(|token| token.is_borne(request.headers()))
    {
        let ask = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, ask, "the token of http_token_file is required").into_response();
    }
    let figures = app.source.figures();
    let lags = app.history.lags(&figures);
    match metrics::page(figures, lags) {
        Ok(text) => {
            let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
            match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
                true => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
                false => ([(header::CONTENT_TYPE, metrics::PLAIN_CONTENT_TYPE)], metrics::plain(&text)).into_response(),
            }
        }
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn health_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let Some(question) = Question::of(request.uri().path()) else { return not_found().await };
    health_answer(&app, question, &request)
}

async fn primary(State(app): State<Arc<App>>, request: Request) -> Response {
    health_answer(&app, Question::Primary, &request)
}

fn health_answer(app: &App, question: Question, request: &Request) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
        return (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET, HEAD, OPTIONS")]).into_response();
    }
    let lag = match health::lag_of(request.uri().query()) {
        Ok(lag) => lag,
        Err(error) => return answer(StatusCode::BAD_REQUEST, &json!({ "error": error })),
    };
    let health = app.source.health();
    let status = if question.holds(&health, lag) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    answer(status, &health::json(&health, app.version))
}

async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "there is no such page").into_response()
}

/// An answer in JSON.
pub(crate) fn answer(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Why a request is not served.
pub(crate) struct Denied(pub StatusCode, pub &'static str);

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        answer(self.0, &json!({ "error": self.1 }))
    }
}

/// A request's body, which must say that it is JSON: a form of another page cannot.
pub(crate) async fn json_of(request: Request) -> Result<Value, Denied> {
    let refuse = |status, why| Err(Denied(status, why));
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");
    }
    match tokio::time::timeout(BODY_TIME_MAX, to_bytes(request.into_body(), BODY_BYTES_MAX)).await {
        Err(_) => refuse(StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        Ok(Err(_)) => refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long, or was cut off"),
        Ok(Ok(bytes)) => match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(value),
            Err(_) => refuse(StatusCode::BAD_REQUEST, "the body is not JSON"),
        },
    }
}
