//! Opening a trail: lock, survey, judge, cut, raise the epoch, and assemble the parts. The order makes a crash during
//! recovery harmless: every step can be repeated from the start.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_seams::{Clock, Disk, DiskLock};
use holdfast_types::{Epoch, Lsn};

use crate::control::Control;
use crate::cut::{Cut, cut_tail};
use crate::delay::Delay;
use crate::error::TrailError;
use crate::layout::{BLOCK, FIRST_SEGMENT, LOCK, Layout, spare_name};
use crate::options::TrailOptions;
use crate::preparer::Preparer;
use crate::receiver::Receiver;
use crate::recovery::{Verdict, judge};
use crate::room::Room;
use crate::shared::{Phase, Ready, Shared, State, TrailStats};
use crate::survey::Survey;
use crate::trail::{Recovered, TrailRole, random_trail_id};
use crate::writer::Writer;

pub struct Parts {
    pub shared: Arc<Shared>,
    pub role: TrailRole,
    pub preparer: Preparer,
    pub lock: Box<dyn DiskLock>,
    pub recovered: Recovered,
}

/// All parts of an open trail except its threads.
pub fn open_parts(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, options: TrailOptions) -> Result<Parts, TrailError> {
    options.check()?;
    let dir = options.dir.clone();
    disk.create_dir(&dir).map_err(TrailError::io("create", &dir))?;
    let lock_path = dir.join(LOCK);
    let lock = disk.lock(&lock_path).map_err(TrailError::io("lock", &lock_path))?;
    let lock = lock.ok_or_else(|| TrailError::InUse { dir: dir.clone() })?;
    let mut survey = Survey::take(&*disk, &dir)?;
    match survey.control {
        Some(control) if control.incarnation > 0 => {
            // A trail keeps the segment size with which it was made, whatever the current setting.
            let options = options.fit_to(control.segment_bytes);
            options.check_fit(control.segment_bytes)?;
            reopen(disk, clock, options, lock, survey, control)
        }
        _ if options.follow => Err(TrailError::NothingToFollow { dir }),
        _ => {
            let control = new_control(&options)?;
            begin(&*disk, &dir, &mut survey, &control)?;
            start_new(disk, clock, options, lock, survey, control)
        }
    }
}

fn new_control(options: &TrailOptions) -> Result<Control, TrailError> {
    let trail_id = match options.new_trail_id {
        Some(id) => id,
        None => random_trail_id()?,
    };
    Ok(Control {
        epoch: Epoch(0),
        trail_id,
        incarnation: 0,
        first_segment: FIRST_SEGMENT,
        segment_bytes: options.segment_bytes,
        incarnation_lsn: Lsn(0),
        proven: Lsn(0),
    })
}

/// Rows 1, 2 and 3: a control file of incarnation 0, as `control` has it, means that nothing was ever appended here.
pub fn begin(disk: &dyn Disk, dir: &Path, survey: &mut Survey, control: &Control) -> Result<(), TrailError> {
    if survey.control.is_none() && !survey.segments.is_empty() {
        return Err(TrailError::File {
            file: dir.join(crate::layout::CONTROL),
            what: "it is missing, but segments exist".to_owned(),
            advice: "Nothing was changed. Put it back from a copy of this directory, or promote a standby",
        });
    }
    control.write(disk, dir)?;
    for file in std::mem::take(&mut survey.segments).into_values() {
        disk.remove(&file.path).map_err(TrailError::io("remove", &file.path))?;
    }
    for path in survey.spares.drain(..) {
        disk.remove(&path).map_err(TrailError::io("remove", &path))?;
    }
    disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))
}

fn start_new(
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    options: TrailOptions,
    lock: Box<dyn DiskLock>,
    survey: Survey,
    control: Control,
) -> Result<Parts, TrailError> {
    let end = Layout { segment_bytes: control.segment_bytes }.first_lsn(FIRST_SEGMENT);
    let control = Control { epoch: next_epoch(control.epoch, options.epoch_min)?, ..control };
    let state = new_state(&options, control, 0);
    let first = Control { incarnation: 1, ..control };
    let shared = Arc::new(Shared::new(disk.clone(), clock, options, first, (end, None), state));
    let mut preparer = Preparer::new(shared.clone(), Vec::new(), survey.next_spare, FIRST_SEGMENT);
    let current = first_segment(&shared, &mut preparer)?;
    let control = Control { incarnation: 1, incarnation_lsn: end, proven: end, ..control };
    control.write(&*disk, &shared.options.dir)?;
    *shared.control.lock() = control;
    let role = TrailRole::writes(Writer::new(shared.clone(), current, end, 0));
    let recovered = recovered(&control, end, end, None, true);
    Ok(Parts { shared, role, preparer, lock, recovered })
}

/// Prepares the one segment that the writer needs to begin.
fn first_segment(shared: &Shared, preparer: &mut Preparer) -> Result<Ready, TrailError> {
    let ready = preparer.prepare()?;
    let mut state = shared.state.lock();
    state.segments.insert(ready.segment, ready.path.clone());
    state.room.segment_entered();
    Ok(ready)
}

fn reopen(
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    options: TrailOptions,
    lock: Box<dyn DiskLock>,
    mut survey: Survey,
    control: Control,
) -> Result<Parts, TrailError> {
    let dir = options.dir.clone();
    let layout = Layout { segment_bytes: control.segment_bytes };
    let verdict = match options.closed.and_then(|closed| closed.verdict(&control)) {
        Some(known) => {
            debug_assert_eq!(known, judge(&*disk, &survey, &control)?, "the close and the search agree");
            known
        }
        None => judge(&*disk, &survey, &control)?,
    };
    let cut = match verdict.torn_bytes {
        0 => None,
        _ => Some(cut_tail(&*disk, &dir, &survey, &control, &verdict)?),
    };
    if let Some(cut) = &cut {
        tracing::warn!(lsn = %cut.lsn, bytes = cut.bytes, saved_to = %cut.saved_to.display(), "cut a torn tail off the trail");
    }
    let last = layout.segment_of(verdict.end);
    retire_unused(&*disk, &options, &mut survey, &control, last)?;
    let control = raise(&*disk, &options, &control, &verdict)?;
    let segments: BTreeMap<u32, PathBuf> = survey.segments.iter().map(|(n, file)| (*n, file.path.clone())).collect();
    let path = segments[&last].clone();
    let file = disk.open(&path, &options.sync_method.open_how()).map_err(TrailError::io("open", &path))?;
    let room_bytes = layout.segment_bytes - layout.offset_of(verdict.end) - BLOCK;
    let mut state = new_state(&options, control, room_bytes);
    state.segments = segments;
    let checksum = verdict.last.map_or(0, |last| last.checksum);
    let shared = Arc::new(Shared::new(disk, clock, options, control, (verdict.end, verdict.last), state));
    let preparer = Preparer::new(shared.clone(), survey.spares, survey.next_spare, last + 1);
    let current = Ready { segment: last, path, file };
    let role = if shared.options.follow {
        TrailRole::receives(Receiver::new(shared.clone(), current, verdict.end, verdict.last))
    } else {
        TrailRole::writes(Writer::new(shared.clone(), current, verdict.end, checksum))
    };
    let recovered = recovered(&control, verdict.first, verdict.end, cut, false);
    Ok(Parts { shared, role, preparer, lock, recovered })
}

/// Rows 9 and 19: segments before and after the trail become spares; a file of the wrong size is removed.
fn retire_unused(
    disk: &dyn Disk,
    options: &TrailOptions,
    survey: &mut Survey,
    control: &Control,
    last: u32,
) -> Result<(), TrailError> {
    let dir = &options.dir;
    let unused: Vec<u32> =
        survey.segments.keys().copied().filter(|number| *number < control.first_segment || *number > last).collect();
    for number in unused {
        let Some(file) = survey.segments.remove(&number) else { continue };
        if file.len_bytes == control.segment_bytes {
            let spare = dir.join(spare_name(survey.next_spare));
            survey.next_spare += 1;
            disk.rename(&file.path, &spare).map_err(TrailError::io("rename", &file.path))?;
            survey.spares.push(spare);
        } else {
            disk.remove(&file.path).map_err(TrailError::io("remove", &file.path))?;
        }
    }
    let mut whole = Vec::new();
    for spare in survey.spares.drain(..) {
        let found = disk.metadata(&spare).map_err(TrailError::io("read the metadata of", &spare))?;
        if found.is_some_and(|found| found.len_bytes == control.segment_bytes) {
            whole.push(spare);
        } else {
            disk.remove(&spare).map_err(TrailError::io("remove", &spare))?;
        }
    }
    survey.spares = whole;
    disk.sync_dir(dir).map_err(TrailError::io("sync the directory", dir))
}

/// Raises the epoch durably before the first append after a restart, so that later boxcars are never taken for earlier
/// ones. A trail that follows another one begins no epoch; it takes its master's.
fn raise(disk: &dyn Disk, options: &TrailOptions, control: &Control, verdict: &Verdict) -> Result<Control, TrailError> {
    let raised = Control {
        epoch: if options.follow { control.epoch } else { next_epoch(control.epoch, options.epoch_min)? },
        incarnation: control.incarnation + 1,
        incarnation_lsn: verdict.end,
        proven: verdict.end,
        ..*control
    };
    raised.write(disk, &options.dir)?;
    Ok(raised)
}

/// Returns an epoch that was never used, neither by this node nor by the one that reported `known_elsewhere`.
fn next_epoch(own: Epoch, known_elsewhere: Epoch) -> Result<Epoch, TrailError> {
    let highest = own.max(known_elsewhere).0;
    let next = highest
        .checked_add(1)
        .ok_or_else(|| TrailError::Option { name: "epoch_min", what: format!("there is no epoch after {highest}") })?;
    Ok(Epoch(next))
}

fn new_state(options: &TrailOptions, control: Control, room_bytes: u64) -> State {
    let layout = Layout { segment_bytes: control.segment_bytes };
    State {
        phase: Phase::Running,
        queue: VecDeque::new(),
        queued_commits: 0,
        delay: Delay::new(options.commit_delay),
        room: Room::new(layout, options.boxcar_bytes_max, options.kept_back_bytes, room_bytes),
        ready: VecDeque::new(),
        unproven_since: None,
        dozing: false,
        waiters: 0,
        disk_full: false,
        refusal: None,
        retry: false,
        retained_from: Lsn(0),
        end_wanted: None,
        segments: BTreeMap::new(),
        stats: TrailStats::default(),
    }
}

fn recovered(control: &Control, first: Lsn, end: Lsn, cut: Option<Cut>, fresh: bool) -> Recovered {
    Recovered {
        trail_id: control.trail_id,
        epoch: control.epoch,
        incarnation: control.incarnation,
        first,
        end,
        cut,
        fresh,
    }
}
