//! A master and a standby over TCP and TLS, on real disks and threads: everything as in use, except databases.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_seams::{RealClock, RealDisk, SyncMethod};
use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::cert::{Authority, CertificateRole};
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::link::take_preamble;
use holdfast_standby::message::Wants;
use holdfast_standby::tls::{NodeFiles, client_config, server_config, server_name};
use holdfast_standby::{
    Blocking, Connect, Ended, Follower, Governor, Hub, Identity, LinkOptions, LinkPhase, LinkServer, Peer, Reached,
    Reason, Refusal, Standby, SyncSet, Tip, draw_instance, follow,
};
use holdfast_trail::{FollowFrom, Trail, TrailOptions};
use holdfast_types::{Epoch, Lsn};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

const RECORDS: u32 = 300;
/// A time that is longer than any of these tests takes.
const WAIT_MAX: Duration = Duration::from_secs(600);

fn open(dir: &Path, follow: bool) -> Trail {
    let options = TrailOptions {
        segment_bytes: 1 << 20,
        boxcar_bytes_max: 256 << 10,
        kept_back_bytes: 8192,
        sync_method: SyncMethod::Fdatasync,
        follow,
        ..TrailOptions::new(dir)
    };
    Trail::open(Arc::new(RealDisk::new()), Arc::new(RealClock), options).unwrap().0
}

fn identity(trail: &Trail) -> Identity {
    Identity { trail_id: trail.trail_id(), format: 1, segment_bytes: trail.segment_bytes(), epoch: trail.epoch() }
}

struct MasterNode {
    trail: Trail,
    reached: watch::Sender<Reached>,
}

impl LinkServer for MasterNode {
    fn rolled_back(&self, _: &str, _: &Refusal) {}

    fn name(&self) -> &str {
        "a"
    }

    fn identity(&self) -> Identity {
        identity(&self.trail)
    }

    fn trail(&self) -> &Trail {
        &self.trail
    }

    fn deposed(&self, _: Epoch) {}

    fn admit(&self, _: &Peer, _: &str, _: &Wants) -> Result<(), Refusal> {
        Ok(())
    }

    fn hold(&self, _: &str, _: Lsn, _: bool) -> Result<(), Refusal> {
        Ok(())
    }

    fn reached(&self, reached: Reached) {
        self.reached.send_modify(|so_far| *so_far = so_far.max(reached));
    }

    fn base_copy(&self, _: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        Err(Refusal::new(Reason::Failed, "there are no databases here", "none"))
    }

    fn status(&self) -> String {
        "{}".to_owned()
    }

    fn promote(&self, _: bool) -> Result<String, Refusal> {
        Err(Refusal::new(Reason::NotSafe, "it is master", "none"))
    }
}

struct StandbyNode {
    trail: Trail,
    applied: watch::Sender<Lsn>,
}

impl Standby for StandbyNode {
    fn name(&self) -> &str {
        "b"
    }

    fn identity(&self) -> Identity {
        identity(&self.trail)
    }

    fn trail(&self) -> &Trail {
        &self.trail
    }

    fn anchor(&self) -> Option<Tip> {
        None
    }

    fn settled(&self) -> Lsn {
        *self.applied.borrow()
    }

    fn allow_apply(&self, lsn: Lsn) {
        self.applied.send_modify(|applied| *applied = (*applied).max(lsn));
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, _: &LinkPhase) {}
}

struct OverTls {
    address: std::net::SocketAddr,
    connector: TlsConnector,
}

impl Connect for OverTls {
    type Stream = client::TlsStream<TcpStream>;

    async fn connect(&self) -> io::Result<Self::Stream> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let host = server_name("127.0.0.1").map_err(io::Error::other)?;
        self.connector.connect(host, stream).await
    }
}

fn files(dir: &Path, authority: &Authority, name: &str) -> NodeFiles {
    let node = authority.issue(name, CertificateRole::Node, &["127.0.0.1".to_owned()]).unwrap();
    let path = |end: &str| -> PathBuf { dir.join(format!("{name}.{end}")) };
    let files = NodeFiles { authority: path("authority"), certificate: path("crt"), key: path("key") };
    std::fs::write(&files.authority, authority.certificate_pem()).unwrap();
    std::fs::write(&files.certificate, node.certificate_pem).unwrap();
    std::fs::write(&files.key, node.key_pem).unwrap();
    files
}

fn append(trail: &Trail, number: u32) {
    let body = vec![number as u8; 100 + number as usize * 7];
    let reservation = trail.reserve(body.len() as u64).unwrap();
    trail.append(reservation, body, Box::new(|_| {})).unwrap();
}

fn bodies(trail: &Trail) -> Vec<u8> {
    trail.read(trail.first()).unwrap().flat_map(|boxcar| boxcar.unwrap().body).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_follows_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new().unwrap();
    let acceptor = TlsAcceptor::from(server_config(&files(dir.path(), &authority, "a")).unwrap());
    let connector = TlsConnector::from(client_config(&files(dir.path(), &authority, "b")).unwrap());

    let reached = watch::channel(Reached::default()).0;
    let mut hears = reached.subscribe();
    let master = Arc::new(MasterNode { trail: open(&dir.path().join("a"), false), reached });
    let governor = Governor::new(GovernorOptions::default());
    let hub = Hub::new(master.clone(), LinkOptions::default(), SyncSet::parse("b").unwrap(), governor);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = hub.clone();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            let (hub, acceptor) = (serving.clone(), acceptor.clone());
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                take_preamble(&mut stream).await.unwrap();
                hub.serve(stream, Peer { address: peer.to_string(), certificate: None }).await
            });
        }
    });

    // Half of the records exist before the standby; the other half is appended while it follows.
    (0..RECORDS / 2).for_each(|number| append(&master.trail, number));
    let from = FollowFrom {
        trail_id: master.trail.trail_id(),
        segment_bytes: master.trail.segment_bytes(),
        first_segment: 1,
        epoch: master.trail.epoch(),
    };
    Trail::found(&RealDisk::new(), &dir.path().join("b"), &from).unwrap();
    let standby = Arc::new(StandbyNode { trail: open(&dir.path().join("b"), true), applied: watch::channel(Lsn(0)).0 });
    let (stop, stopped) = watch::channel(false);
    let following = tokio::spawn(follow(Follower {
        standby: standby.clone(),
        connect: OverTls { address, connector },
        options: LinkOptions::default(),
        blocking: Blocking::Threads,
        instance: draw_instance(),
        stop: stopped,
    }));
    (RECORDS / 2..RECORDS).for_each(|number| append(&master.trail, number));

    // The trail's own proof of the last record is one more boxcar, which may be written at any time: everything is
    // compared at once.
    let trail = &master.trail;
    let expected = (0..RECORDS).flat_map(|number| vec![number as u8; 100 + number as usize * 7]).collect::<Vec<u8>>();
    let is_there = |hears: &mut watch::Receiver<Reached>| {
        let reports = hub.standbys();
        let reported = reports.first().map(|r| (r.name.as_str(), r.lag_bytes, r.priority));
        bodies(trail).len() == expected.len()
            && hears.borrow_and_update().commit >= trail.durable()
            && standby.trail.tip() == trail.tip()
            && reported == Some(("b", Some(0), Some(0)))
    };
    let all = async {
        while !is_there(&mut hears) {
            // The master's own proof is not reported, so the test checks again after 50 ms.
            let _ = tokio::time::timeout(Duration::from_millis(50), hears.changed()).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, all).await.expect("the standby comes to the master's end");
    assert_eq!(bodies(&standby.trail), expected);

    stop.send(true).unwrap();
    assert!(matches!(following.await.unwrap(), Ended::Stopped));
}
