//! A real Chromium, driven through ChromeDriver's HTTP interface (W3C WebDriver).

use super::ask;
use holdfast_seams::testing::Patience;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Without them Chromium asks hosts of its maker.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Ends the browser as well.
            let _ = self.call("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// `None`: Chromium or ChromeDriver is not installed.
    pub fn start() -> Option<Browser> {
        if !Path::new("/usr/bin/chromium").exists() {
            return None;
        }
        let port = holdfast_seams::testing::port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let profile = TempDir::new().unwrap();
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let mut patience = Patience::new();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            patience.look("ChromeDriver listens");
            std::thread::sleep(Duration::from_millis(20));
        }
        let profile = format!("--user-data-dir={}", browser._profile.path().display());
        let flags: Vec<&str> = FLAGS.into_iter().chain([profile.as_str(), "--window-size=1280,900"]).collect();
        let options = json!({ "binary": "/usr/bin/chromium", "args": flags });
        let logs = json!({ "browser": "ALL", "performance": "ALL" });
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": logs,
        } } });
        let answer = ask(port, "POST", "/session", "Content-Type: application/json\r\n", &wanted.to_string());
        browser.session =
            answer.json()["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned();
        Some(browser)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session/{}{path}", self.session);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = ask(self.port, method, &path, "Content-Type: application/json\r\n", &body);
        assert_eq!(answer.status, 200, "{method} {path} {body}: {answer:?}");
        answer.json()["value"].clone()
    }

    pub fn open(&self, url: &str) {
        self.call("POST", "/url", &json!({ "url": url }));
    }

    /// The value of a JavaScript expression on the page.
    pub fn value(&self, expression: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({ "script": format!("return {expression}"), "args": [] }))
    }

    /// The text of all elements that a selector finds, a line each.
    pub fn text(&self, selector: &str) -> String {
        let expression = format!("[...document.querySelectorAll({selector:?})].map(e => e.innerText).join('\\n')");
        self.value(&expression).as_str().unwrap().to_owned()
    }

    /// Clicks as a person does: the element must be visible and not covered.
    pub fn click(&self, selector: &str) {
        let id = self.find(selector);
        self.call("POST", &format!("/element/{id}/click"), &json!({}));
    }

    fn find(&self, selector: &str) -> String {
        let found = self.call("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Waits until an expression is true.
    pub fn until(&self, what: &str, expression: &str) {
        let mut patience = Patience::new();
        while self.value(&format!("!!({expression})")) != true {
            patience.look(what);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn resize(&self, width: u32, height: u32) {
        // Of the page, not of the window: a headless window has a smallest width.
        let parameters = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": parameters });
        self.call("POST", "/goog/cdp/execute", &command);
    }

    /// The page, down to its end, as a PNG file.
    pub fn screenshot(&self, file: &Path) {
        let command = json!({ "cmd": "Page.captureScreenshot", "params": { "captureBeyondViewport": true } });
        let taken = self.call("POST", "/goog/cdp/execute", &command);
        std::fs::write(file, from_base64(taken["data"].as_str().unwrap())).unwrap();
    }

    /// What the page and the browser have complained of.
    pub fn complaints(&self) -> Vec<String> {
        let lines = self.call("POST", "/se/log", &json!({ "type": "browser" }));
        let lines = lines.as_array().unwrap().iter();
        lines.filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG").map(Value::to_string).collect()
    }

    /// Every address that the page has requested.
    pub fn requested(&self) -> Vec<String> {
        let lines = self.call("POST", "/se/log", &json!({ "type": "performance" }));
        let of = |line: &Value| -> Option<String> {
            let message: Value = serde_json::from_str(line["message"].as_str()?).ok()?;
            let event = &message["message"];
            let url = event["params"]["request"]["url"].as_str()?;
            (event["method"] == "Network.requestWillBeSent").then(|| url.to_owned())
        };
        lines.as_array().unwrap().iter().filter_map(of).collect()
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut out, mut bits, mut held) = (Vec::with_capacity(text.len() * 3 / 4), 0_u32, 0);
    for six in text.bytes().filter_map(value) {
        bits = (bits << 6) | u32::from(six);
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    out
}
