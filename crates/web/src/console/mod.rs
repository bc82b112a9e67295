//! The console: login, what it shows, what it does.
//!
//! | request | needs |
//! |---|---|
//! | the page, its script and its style | nothing: they hold no data |
//! | `POST /api/login` | role and password, or a one-time ticket |
//! | `GET /api/session`: which role is logged in, if any | nothing |
//! | `GET /api/state` | a console session |
//! | `POST /api/signal`, `POST /api/logout` | a console session and its token (`x-csrf-token`) |
//!
//! Every request asks again what the role may do: a session ends when its role is dropped, changes its password, or is no longer a
//! member of pg_monitor. Cancelling and terminating needs what SQL's functions need.

pub(crate) mod assets;
mod sessions;
mod shown;
mod throttle;

use crate::figures::{Refused, Rights, SignalKind, Source};
use crate::one_time::Tickets;
use crate::routes::{App, Denied, answer, json_of};
use crate::serve::Connection;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use sessions::{Opened, Sessions};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use throttle::Throttle;

/// The role of operators that log in with a ticket: the one that made the directory.
pub const OWNER: &str = "holdfast";

/// Without TLS; with TLS the prefix makes the browser insist on it.
const COOKIE: &str = "holdfast_console";
const SECURE_COOKIE: &str = "__Host-holdfast_console";

/// The state of the console.
pub struct Console {
    sessions: Sessions,
    throttle: Throttle,
    tickets: Tickets,
}

impl Console {
    pub fn new(key: &[u8]) -> Console {
        Console { sessions: Sessions::default(), throttle: Throttle::default(), tickets: Tickets::new(key) }
    }

    /// Ends sessions that have timed out, or whose role may no longer see this.
    pub fn forget_old(&self, source: &dyn Source) {
        self.sessions.retain(|role, version| is_same(source.rights(role), version));
    }
}

fn is_same(rights: Option<Rights>, version: u64) -> bool {
    rights.is_some_and(|rights| rights.monitors && rights.version == version)
}

fn refuse(status: StatusCode, why: &str) -> Response {
    answer(status, &json!({ "error": why }))
}

/// `POST /api/login`.
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    let client = connection.client;
    if let Err(wait) = app.console.throttle.admits(client) {
        let mut response =
            refuse(StatusCode::TOO_MANY_REQUESTS, &format!("too many failed attempts; wait {wait} seconds"));
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
        return response;
    }
    let body = match json_of(request).await {
        Ok(body) => body,
        Err(denied) => return denied.into_response(),
    };
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (role, password, ticket) = (text("role"), text("password"), text("ticket"));
    let rights = if ticket.is_empty() {
        let source = app.source.clone();
        let (named, checked) =
            (role.clone(), tokio::task::spawn_blocking(move || source.login(&role, &password, client)));
        checked
            .await
            .unwrap_or_else(|_| Err(Refused("the password cannot be checked".into())))
            .map(|rights| (named, rights))
    } else if app.console.tickets.take(&ticket, unix_s()) {
        let rights = app.source.rights(OWNER).map(|rights| (OWNER.to_owned(), rights));
        rights.ok_or_else(|| {
            without_password(&app, client, &format!("the role {OWNER} does not exist, or may not log in"))
        })
    } else {
        let why = "this login is used up or too old; make a new one with: holdfast console";
        Err(without_password(&app, client, why))
    };
    match rights {
        Ok((role, rights)) if rights.monitors => {
            app.console.throttle.succeeded(client);
            opened(&app, &role, rights, client)
        }
        Ok((role, _)) => {
            app.console.throttle.succeeded(client);
            refuse(StatusCode::FORBIDDEN, &format!("role \"{role}\" may not see this: GRANT pg_monitor TO it"))
        }
        Err(why) => refuse(StatusCode::UNAUTHORIZED, &why.0),
    }
}

/// A one-time login failed.
fn without_password(app: &App, client: IpAddr, why: &str) -> Refused {
    app.source.login_failed(client, why);
    Refused(why.to_owned())
}

fn opened(app: &App, role: &str, rights: Rights, client: IpAddr) -> Response {
    let Some(Opened { cookie, token }) = app.console.sessions.open(role, rights.version) else {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, "the system has no random numbers");
    };
    tracing::info!(target: "holdfast::console", %client, role, "console: logged in");
    let body = json!({ "role": role, "token": token, "signals": rights.signals });
    with_cookie(answer(StatusCode::OK, &body), app, &cookie, "")
}

/// `more`: further attributes of the cookie.
fn with_cookie(mut response: Response, app: &App, cookie: &str, more: &str) -> Response {
    let (name, secure) = if app.has_tls { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    let text = format!("{name}={cookie}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(header::SET_COOKIE, value);
    }
    response
}

/// The cookie of the request.
fn cookie<'a>(app: &App, headers: &'a HeaderMap) -> Option<&'a str> {
    let name = if app.has_tls { SECURE_COOKIE } else { COOKIE };
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|text| text.split(';')).find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// The role of the session that the request belongs to, what it may do, and the session's token.
fn session_of(app: &App, method: &Method, headers: &HeaderMap) -> Result<(String, Rights, String), Denied> {
    let expired = || Denied(StatusCode::UNAUTHORIZED, "log in");
    let cookie = cookie(app, headers).ok_or_else(expired)?;
    let (role, version, token) = app.console.sessions.find(cookie).ok_or_else(expired)?;
    let rights = app.source.rights(&role).filter(|rights| rights.monitors && rights.version == version);
    let Some(rights) = rights else {
        app.console.sessions.close(cookie);
        return Err(expired());
    };
    let given = headers.get("x-csrf-token").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_token = || crate::guard::Secret::new(&token).is_some_and(|secret| secret.is(given));
    if method != Method::GET && !is_token() {
        return Err(Denied(StatusCode::FORBIDDEN, "the request does not come from the console's page"));
    }
    Ok((role, rights, token))
}

/// `POST /api/logout`.
pub(crate) async fn logout(State(app): State<Arc<App>>, request: Request) -> Response {
    if let Err(denied) = session_of(&app, request.method(), request.headers()) {
        return denied.into_response();
    }
    if let Some(cookie) = cookie(&app, request.headers()) {
        app.console.sessions.close(cookie);
    }
    with_cookie(answer(StatusCode::OK, &json!({})), &app, "", "; Max-Age=0")
}

/// `GET /api/session`: the role that is logged in; null: none.
pub(crate) async fn session(State(app): State<Arc<App>>, request: Request) -> Response {
    let role = session_of(&app, request.method(), request.headers()).ok().map(|(role, ..)| role);
    answer(StatusCode::OK, &json!({ "role": role }))
}

/// `GET /api/state?points=N&events=N`: what the page shows; of points and events those with higher numbers.
pub(crate) async fn state(State(app): State<Arc<App>>, request: Request) -> Response {
    let (role, rights, token) = match session_of(&app, request.method(), request.headers()) {
        Ok(session) => session,
        Err(denied) => return denied.into_response(),
    };
    let after = |name: &str| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        pairs.filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name).and_then(|(_, n)| n.parse().ok())
    };
    let (points, events) = (after("points").unwrap_or(0), after("events").unwrap_or(0));
    let figures = app.last.lock().clone();
    let mut body = shown::state(&app, &figures, points, events);
    body.insert("operator".to_owned(), json!({ "role": role, "signals": rights.signals, "token": token }));
    answer(StatusCode::OK, &Value::Object(body))
}

/// `POST /api/signal {"pid": N, "kind": "cancel" | "terminate"}`.
pub(crate) async fn signal(State(app): State<Arc<App>>, request: Request) -> Response {
    let role = match session_of(&app, request.method(), request.headers()) {
        Ok((role, ..)) => role,
        Err(denied) => return denied.into_response(),
    };
    let body = match json_of(request).await {
        Ok(body) => body,
        Err(denied) => return denied.into_response(),
    };
    let pid = body.get("pid").and_then(Value::as_i64).and_then(|pid| i32::try_from(pid).ok());
    let kind = match body.get("kind").and_then(Value::as_str) {
        Some("cancel") => Some(SignalKind::Cancel),
        Some("terminate") => Some(SignalKind::Terminate),
        _ => None,
    };
    let (Some(pid), Some(kind)) = (pid, kind) else {
        return refuse(StatusCode::BAD_REQUEST, "pid and kind (cancel, terminate) are required");
    };
    match app.source.signal(&role, pid, kind) {
        Ok(()) => {
            let done = match kind {
                SignalKind::Cancel => "cancelled the statement of",
                SignalKind::Terminate => "terminated",
            };
            tracing::info!(target: "holdfast::console", role, "console: {role} {done} session {pid}");
            answer(StatusCode::OK, &json!({}))
        }
        Err(why) => refuse(StatusCode::FORBIDDEN, &why.0),
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}
