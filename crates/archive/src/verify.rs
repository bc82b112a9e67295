//! Reading everything in an archive: is each object whole, and does each go on from the one before?

use serde::Serialize;

use crate::error::ArchiveError;
use crate::holdings::Holdings;
use crate::object::{SEGMENT_BYTES_MAX, Segment, bytes_max};
use crate::store::Store;

/// Something about an object that whoever looks after the archive has to know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// With the directory in front.
    pub object: String,
    pub what: String,
}

/// What came of reading one trail's objects.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    pub objects: u64,
    pub bytes: u64,
    pub boxcars: u64,
    /// Damage and gaps: what rolling forward would stop at.
    pub problems: Vec<Finding>,
    /// What is no damage: objects of histories that ended.
    pub notes: Vec<Finding>,
}

/// Reads all objects of a trail, one at a time; `progress` is called behind each. An error is one of the store as a whole.
pub async fn verify(
    store: &dyn Store,
    holdings: &Holdings,
    mut progress: impl FnMut(),
) -> Result<Report, ArchiveError> {
    let mut report = Report::default();
    // Last checksums of the segment before, and its number.
    let mut before: Option<(u32, Vec<u32>)> = None;
    let mut here: Option<(u32, Vec<u32>)> = None;
    for holding in holdings.objects() {
        let (name, number) = (holding.name, holding.name.segment);
        if here.as_ref().is_none_or(|(of, _)| *of != number) {
            before = here.take().filter(|(of, _)| *of + 1 == number);
            here = Some((number, Vec::new()));
        }
        let text = name.to_string();
        report.objects += 1;
        report.bytes += holding.bytes;
        let finding = |what: String| Finding { object: text.clone(), what };
        let read = match store.get(&text, bytes_max(SEGMENT_BYTES_MAX)).await {
            Ok(Some(object)) => crate::error::blocking(move || Segment::decode(&name, &object)).await,
            Ok(None) => Err(ArchiveError::Vanished { name: text.clone() }),
            Err(error) => Err(error),
        };
        match read {
            Ok(segment) => {
                let manifest = segment.manifest;
                report.boxcars += u64::from(manifest.boxcars);
                // Where the one before could not be read, that is what is told.
                let parted = before.as_ref().filter(|(_, last)| !last.is_empty());
                if parted.is_some_and(|(_, last)| !last.contains(&manifest.previous_checksum)) {
                    report.problems.push(finding("it does not go on from the segment before it".to_owned()));
                }
                here.iter_mut().for_each(|(_, last)| last.push(manifest.last_checksum));
            }
            Err(ArchiveError::Damaged { what, .. }) => report.problems.push(finding(format!("damaged: {what}"))),
            Err(error) => report.problems.push(finding(error.to_string())),
        }
        progress();
    }
    for (first, last) in holdings.gaps() {
        let what = format!("segments {first} to {last} are missing");
        report.problems.push(Finding { object: format!("{first:08x} to {last:08x}"), what });
    }
    for segment in holdings.forked() {
        let names: Vec<String> = holdings.names(segment).iter().map(ToString::to_string).collect();
        let what = "there is more than one object of this segment: two nodes parted there".to_owned();
        report.notes.push(Finding { object: names.join(", "), what });
    }
    Ok(report)
}
