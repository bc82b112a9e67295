//! The console's three files, part of the binary: no build chain, no request to another server.

use axum::http::header;
use axum::response::{IntoResponse, Response};

const PAGE: &str = include_str!("console.html");
const SCRIPT: &str = include_str!("console.js");
const STYLE: &str = include_str!("console.css");

fn file(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

pub(crate) async fn page() -> Response {
    file("text/html; charset=utf-8", PAGE)
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}
