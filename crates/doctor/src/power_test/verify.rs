//! After the power came back: is every number that the recorder received in the file?
//!
//! The file holds the last numbers only. Number N's block must hold N or, written since, a later number of the run. The
//! block that was being written when the power went may be torn; it held the oldest number, so that one is left out.

use std::path::Path;

use anyhow::{Context as _, bail};
use holdfast_seams::{AlignedBuf, BLOCK_BYTES, Disk as _, OpenHow, RealDisk};
use serde::Serialize;

use super::conversation::Conversation;
use super::{FILE_NAME, record};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub run: u64,
    /// The last number that the recorder received.
    pub acknowledged: u64,
    /// The last number in the file.
    pub found: u64,
    /// How many of the acknowledged were looked for: as many as the file holds.
    pub looked_for: u64,
    /// Acknowledged, and not there.
    pub lost: u64,
    /// The first of them.
    pub first_lost: Option<u64>,
}

/// Asks the recorder and reads the file.
pub fn verify(directory: &Path, recorder: &str) -> anyhow::Result<Outcome> {
    let mut conversation = Conversation::begin(recorder)?;
    let path = directory.join(FILE_NAME);
    let records = read_file(&path)?;
    conversation.say("ask")?;
    let answer = conversation.answer()?;
    let words: Vec<&str> = answer.split(' ').collect();
    let ["run", run, acknowledged] = words[..] else { bail!("the recorder's answer is not understood: {answer}") };
    let (run, acknowledged): (u64, u64) = (run.parse()?, acknowledged.parse()?);
    if acknowledged == 0 {
        bail!("the recorder has no record: it was restarted, or the writer never ran");
    }
    Ok(judge(run, acknowledged, &records))
}

/// The contents of each block; a missing file holds nothing.
fn read_file(path: &Path) -> anyhow::Result<Vec<Option<(u64, u64)>>> {
    let disk = RealDisk::new();
    let mut bytes = AlignedBuf::zeroed(record::BLOCKS as usize * BLOCK_BYTES);
    if disk.metadata(path)?.is_some() {
        let file = disk.open(path, &OpenHow::READ_DIRECT).with_context(|| format!("cannot open {}", path.display()))?;
        file.read_at(bytes.as_mut_slice(), 0).with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(bytes.as_slice().chunks(BLOCK_BYTES).map(record::read).collect())
}

fn judge(run: u64, acknowledged: u64, records: &[Option<(u64, u64)>]) -> Outcome {
    let of_run = |record: &Option<(u64, u64)>| record.filter(|(of, _)| *of == run).map(|(_, number)| number);
    let found = records.iter().filter_map(of_run).max().unwrap_or(0);
    let first = (found.max(acknowledged) + 2).saturating_sub(records.len() as u64).max(1);
    let is_lost = |number: &u64| {
        let block = (*number - 1) as usize % records.len();
        of_run(&records[block]).is_none_or(|there| there < *number)
    };
    let lost: Vec<u64> = (first..=acknowledged).filter(is_lost).collect();
    Outcome {
        run,
        acknowledged,
        found,
        looked_for: (acknowledged + 1).saturating_sub(first),
        lost: lost.len() as u64,
        first_lost: lost.first().copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of four blocks after `last` records.
    fn blocks(last: u64) -> Vec<Option<(u64, u64)>> {
        let mut blocks = vec![None; 4];
        (1..=last).for_each(|number| blocks[(number - 1) as usize % 4] = Some((9, number)));
        blocks
    }

    fn lost(acknowledged: u64, records: &[Option<(u64, u64)>]) -> (u64, Option<u64>) {
        let outcome = judge(9, acknowledged, records);
        (outcome.lost, outcome.first_lost)
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        assert_eq!(lost(3, &blocks(3)), (0, None));
        assert_eq!(lost(3, &blocks(4)), (0, None), "written, not reported");
        assert_eq!(lost(3, &blocks(2)), (1, Some(3)));
        assert_eq!(lost(11, &blocks(11)), (0, None));
        assert_eq!(lost(11, &blocks(9)), (2, Some(10)));
        assert_eq!(lost(3, &[None; 4]), (3, Some(1)), "the file is gone");
    }

    #[test]
    fn the_block_under_the_pen_may_be_torn_and_no_other() {
        let mut torn = blocks(11);
        torn[3] = None; // number 12's, over number 8
        assert_eq!(lost(11, &torn), (0, None));
        torn[1] = None; // number 10's
        assert_eq!(lost(11, &torn), (1, Some(10)));
    }

    #[test]
    fn records_of_another_run_do_not_count() {
        let others: Vec<_> = blocks(4).into_iter().map(|r| r.map(|(_, number)| (8, number))).collect();
        assert_eq!(lost(3, &others), (3, Some(1)));
    }
}
