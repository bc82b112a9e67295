//! The console in a real browser: a person logs in, sees the load and the standby, cancels, terminates, logs out.

use super::browser::Browser;
use super::{ON, port_of};
use crate::node::{Pair, one, run, succeeds, until};
use holdfast_seams::testing::skipped;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;

/// Where screenshots are kept, to be looked at.
fn picture(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/console");
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(format!("{name}.png"))
}

/// Clients that write until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    async fn start(pair: &Pair, clients: usize) -> Load {
        run(&pair.a.connect().await, "create table load(id serial primary key, v int)").await;
        let mut load = Load { stop: Arc::default(), clients: Vec::new() };
        for number in 0..clients {
            let (client, stop) = (pair.a.connect().await, load.stop.clone());
            run(&client, &format!("set application_name = 'orders-{number}'")).await;
            load.clients.push(tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    run(&client, &format!("insert into load(v) values ({number})")).await;
                    run(&client, "select count(*) from load where id < 50").await;
                }
            }));
        }
        load
    }

    async fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.unwrap();
        }
    }
}

/// Number of the process that serves this session.
async fn pid(client: &tokio_postgres::Client) -> i32 {
    one(client, "select pg_backend_pid()").await.parse().unwrap()
}

fn pictures(browser: &Browser) {
    for (theme, width, height) in [("light", 1280, 900), ("dark", 1280, 900), ("light", 390, 844), ("dark", 390, 844)] {
        browser.resize(width, height);
        browser.value(&format!("document.documentElement.dataset.theme = '{theme}'"));
        browser.until("the charts fit", "document.querySelector('.chart svg').clientWidth > 100");
        let wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(browser.value(wide), false, "{theme} {width}: the page is wider than the window");
        // One poll draws the charts in their new size.
        browser.value("charts.forEach(draw)");
        browser.screenshot(&picture(&format!("{theme}-{width}")));
    }
    browser.resize(1280, 900);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_sees_load_and_standby_cancels_and_terminates() {
    let Some(browser) = Browser::start() else {
        return skipped("Chromium and ChromeDriver are not installed (Debian packages chromium, chromium-driver)");
    };
    let pair = Pair::start(ON).await;
    let base = format!("http://127.0.0.1:{}/", port_of(&pair.a));
    let load = Load::start(&pair, 6).await;

    // One session sleeps, one holds a lock, two wait for it; their names would be script if the page did not escape them.
    let (sleeper, holder) = (pair.a.connect().await, pair.a.connect().await);
    run(&holder, "set application_name = '<img src=x onerror=window.hacked=1>'").await;
    run(&holder, "create table held(id int primary key)").await;
    run(&holder, "begin; insert into held values (1)").await;
    let (slept, held) = (pid(&sleeper).await, pid(&holder).await);
    let sleeping = tokio::spawn(async move { sleeper.batch_execute("select pg_sleep(3600)").await });
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let client = pair.a.connect().await;
        waiting.push(tokio::spawn(async move { client.batch_execute("insert into held values (1)").await }));
    }

    tokio::task::block_in_place(|| {
        // Without a login there is a form and nothing else.
        browser.open(&base);
        browser.until("the form is shown", "!document.getElementById('login').hidden");
        assert!(!browser.text("body").contains("orders"));
        browser.screenshot(&picture("login"));
        // The address differs behind the # only: the browser would not load the page again.
        browser.open("about:blank");
        browser.open(succeeds(&["console", "--data", pair.a.data()]).trim());
        browser.until("the console is shown", "!document.getElementById('app').hidden");
        assert_eq!(browser.value("location.hash"), "", "the ticket is not left in the address");
        browser.until("commits are counted", "store.points.some(p => p.tps > 0 && p.com99 > 0 && p.sync99 > 0)");
        browser.until("the standby is shown", "document.querySelector('#standbys-body td')?.innerText === 'b'");
        browser.until("both wait", "document.querySelectorAll('#waits-body li').length === 3");
        let tree = browser.text("#waits-body");
        assert!(tree.contains(&format!("session {held}")) && tree.contains("insert into held"), "{tree}");
        assert!(browser.text("#sessions-body").contains("<img src=x onerror"), "as text");
        assert_eq!(browser.value("window.hacked === undefined"), true);
        assert!(browser.text("#storage-body").contains("Trail on disk"));
        browser.until("events are shown", "document.querySelectorAll('#events-body li').length > 0");
        // Half a minute of history makes the charts worth looking at.
        browser.until("there is some history", "store.points.length >= 30");
        pictures(&browser);

        // What has the focus keeps it while the page is refreshed.
        let cancel = format!("[aria-label=\"Cancel the statement of session {slept}\"]");
        browser.value(&format!("document.querySelector('{cancel}').focus()"));
        browser.value("window.seen = store.point");
        browser.until("two more seconds are shown", "store.point > window.seen + 1");
        assert_eq!(browser.value(&format!("document.activeElement === document.querySelector('{cancel}')")), true);

        browser.click(&cancel);
        browser.until("it asks", "document.getElementById('confirm').open");
        browser.screenshot(&picture("confirm"));
        browser.click("#confirm-no");
        browser.until("it is closed", "!document.getElementById('confirm').open");
        browser.click(&cancel);
        browser.click("#confirm-yes");
        browser.until("it is done", &format!("document.getElementById('done').innerText.includes('session {slept}')"));
    });
    let cancelled = sleeping.await.unwrap().unwrap_err();
    assert_eq!(cancelled.code(), Some(&SqlState::QUERY_CANCELED), "{cancelled:?}");

    tokio::task::block_in_place(|| {
        browser.click(&format!("[aria-label=\"Terminate session {held}\"]"));
        browser.click("#confirm-yes");
        browser.until("no session waits", "document.querySelector('#waits-body .empty')");
    });
    until("the session has ended", async || holder.is_closed()).await;
    let ended: Vec<_> = futures::future::join_all(waiting).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1, "the first gets the key, the other a duplicate");

    tokio::task::block_in_place(|| {
        browser.click("#logout");
        browser.until("the form is shown", "!document.getElementById('login').hidden");
        assert_eq!(browser.complaints(), Vec::<String>::new());
        let requested = browser.requested();
        // The browser's own pages, such as that of a new tab, leave the machine as little as data in the address does.
        let own = |url: &str| ["about:", "chrome:", "data:"].iter().any(|scheme| url.starts_with(scheme));
        let foreign: Vec<_> = requested.iter().filter(|url| !url.starts_with(&base) && !own(url)).collect();
        assert!(foreign.is_empty() && requested.len() > 30, "{foreign:?}");
    });
    load.end().await;
}
