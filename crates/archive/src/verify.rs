//! Reads everything in an archive and checks that each object is whole and continues the one before it.

use serde::Serialize;

use crate::error::ArchiveError;
use crate::holdings::Holdings;
use crate::object::{SEGMENT_BYTES_MAX, Segment, bytes_max};
use crate::store::Store;

/// A finding about an object that the operator needs to know.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// The name including the directory.
    pub object: String,
    pub what: String,
}

/// The result of reading one trail's objects.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    pub objects: u64,
    pub bytes: u64,
    pub boxcars: u64,
    /// Damage and gaps, at which rolling forward would stop.
    pub problems: Vec<Finding>,
    /// Findings that are not damage: objects of histories that ended.
    pub notes: Vec<Finding>,
}

/// Reads all objects of a trail, one at a time; `progress` is called after each. An error is an error of the whole
/// store.
pub async fn verify(
    store: &dyn Store,
    holdings: &Holdings,
    mut progress: impl FnMut(),
) -> Result<Report, ArchiveError> {
    let mut report = Report::default();
    // Last checksums of the previous segment, and its number.
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
                // If the previous object could not be read, that is already reported.
                let parted = before.as_ref().filter(|(_, last)| !last.is_empty());
                if parted.is_some_and(|(_, last)| !last.contains(&manifest.previous_checksum)) {
                    report.problems.push(finding("it does not continue the segment before it".to_owned()));
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
        let what = "this segment has more than one object: two nodes diverged there".to_owned();
        report.notes.push(Finding { object: names.join(", "), what });
    }
    Ok(report)
}
