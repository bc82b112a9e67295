//! Reading everything.

use std::path::Path;

use crate::support::{ID, put_one, store, trail_up_to};
use holdfast_archive::{Holdings, verify};
use holdfast_seams::Disk;
use holdfast_seams::testing::FaultDisk;

#[tokio::test]
async fn damage_gaps_and_strangers_are_found() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let (trail, store) = (trail_up_to(&disk, "/trail", 7), store(&archive));
    let mut names = Vec::new();
    for number in 1..7 {
        names.push(put_one(&store, &trail, number).await.name.to_string());
    }
    let holdings = Holdings::of(&store, ID).await.unwrap();
    let mut read = 0;
    let report = verify(&store, &holdings, || read += 1).await.unwrap();
    assert_eq!((report.objects, read, report.problems.len(), report.notes.len()), (6, 6, 0, 0), "{report:?}");
    // Any bit of any object.
    let path = Path::new("/archive").join(&names[2]);
    let bytes = archive.contents(&path).unwrap().len();
    for byte in (0..bytes).step_by(97) {
        archive.rot(&path, byte as u64, 1);
        let report = verify(&store, &holdings, || {}).await.unwrap();
        let objects: Vec<&str> = report.problems.iter().map(|problem| problem.object.as_str()).collect();
        assert_eq!(objects, [names[2].as_str()], "byte {byte}: {report:?}");
        archive.rot(&path, byte as u64, 1);
    }
    // One that is gone.
    Disk::remove(&archive, &Path::new("/archive").join(&names[3])).unwrap();
    let holdings = Holdings::of(&store, ID).await.unwrap();
    let report = verify(&store, &holdings, || {}).await.unwrap();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    assert!(report.problems[0].what.contains("4 to 4 are missing"), "{report:?}");
}
