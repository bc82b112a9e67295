//! The answers of a batch of statements, gathered in one buffer.
//!
//! In the extended protocol the client has often sent the whole batch before any of it runs. The answers to Parse,
//! Bind, Describe and Close are then known at once, those to Execute only later, and the client expects them in the
//! order of its messages. So the former go into a *script*, and each statement knows how much of the script must be
//! copied out before it begins:
//!
//! ```text
//! script:  ParseComplete BindComplete | BindComplete RowDescription | CloseComplete
//!                          step 0 ----^                 step 1 -----^             ^---- finish
//! ```
//!
//! A reply is `Send`: the thread that runs a statement encodes its rows.

use crate::backend;
use crate::copy::{CopyFormat, CopyWriter};
use crate::encode::{self, Output};
use crate::frontend::Formats;
use crate::held::Held;
use crate::limits::{BUFFER_KEPT_BYTES_MAX, FLUSH_BYTES};
use crate::memory::{Kept, SessionMemory};
use crate::result_limits::ResultLimits;
use crate::severity::Severity;
use holdfast_types::{Row, Sink, SqlError, SqlResult, SqlState, StatementDesc, Tag};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How to answer one Execute.
struct StepReply {
    formats: Formats,
    /// Rows to send before the portal is suspended; 0 for all.
    rows_max: usize,
    /// The script up to here comes before this step's rows.
    script_end: usize,
}

/// Takes the contents of a full buffer while a statement is still running, and leaves it empty.
pub type Stream = Box<dyn FnMut(&mut Vec<u8>) -> SqlResult<()> + Send>;

/// The current statement.
#[derive(Default)]
struct Current {
    step: usize,
    desc: Option<Arc<StatementDesc>>,
    rows: u64,
    /// Bytes of the messages of these rows.
    bytes: u64,
    held: Option<Held>,
}

/// A position in a reply.
#[derive(Clone, Copy, Default)]
pub struct ReplyMark {
    /// Bytes of answers before it, those included that have left.
    answers: u64,
    script_done: usize,
    suspended: usize,
}

pub struct Reply {
    out: Vec<u8>,
    output: Output,
    memory: Arc<SessionMemory>,
    /// The length of `out`, where that is large.
    unsent: Kept,
    /// Bytes that have left `out`.
    gone: u64,
    /// `out` must not become larger: [`Reply::has_overflowed`] reports that it would have.
    out_bytes_max: usize,
    overflowed: bool,
    script: Vec<u8>,
    script_done: usize,
    steps: Vec<StepReply>,
    /// The session runs a simple Query: every result is described, all in text.
    simple: bool,
    /// Added to the step numbers that the engine reports.
    first_step: usize,
    /// The position that `reset` returns to.
    mark: ReplyMark,
    /// `reset` should have dropped what had left already.
    cannot_go_back: bool,
    current: Current,
    suspended: Vec<(usize, Held)>,
    copy: Option<CopyWriter>,
    stream: Option<Stream>,
    /// The limits of each result.
    result_limits: ResultLimits,
    /// Notices below this severity are not sent.
    least_severity: Severity,
    /// What the statements of the message have taken, if that is measured.
    measured: Option<Vec<Measured>>,
    /// Steps of the message run again: a step that has not ended is anywhere in `measured`, else at its end.
    runs_again: bool,
}

/// What a statement has taken.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub step: usize,
    /// When it began to run, for the first time if it had to begin again.
    begun: Instant,
    /// From then to its end; `None`: it has not ended, or it was answered without the engine.
    pub time: Option<Duration>,
    /// Rows returned or changed; 0 where the command tag has no number.
    pub rows: u64,
    pub verb: &'static str,
    /// Bytes and number of the row images that it has put into the trail, as far as the engine reports them.
    pub recorded: (u64, u64),
    ended: bool,
}

impl Measured {
    fn begun(step: usize) -> Measured {
        Measured { step, begun: Instant::now(), time: None, rows: 0, verb: "", recorded: (0, 0), ended: false }
    }
}

impl Reply {
    pub fn new(output: Output, memory: &Arc<SessionMemory>) -> Reply {
        Reply {
            out: Vec::with_capacity(4096),
            output,
            memory: memory.clone(),
            unsent: Kept::new(memory),
            gone: 0,
            out_bytes_max: usize::MAX,
            overflowed: false,
            script: Vec::new(),
            script_done: 0,
            steps: Vec::new(),
            simple: false,
            first_step: 0,
            mark: ReplyMark::default(),
            cannot_go_back: false,
            current: Current::default(),
            suspended: Vec::new(),
            copy: None,
            stream: None,
            result_limits: ResultLimits::default(),
            least_severity: Severity::default(),
            measured: None,
            runs_again: false,
        }
    }

    /// From now on it is measured what each statement takes, or not. Forgets what was measured before.
    pub fn measure(&mut self, on: bool) {
        self.runs_again = false;
        match &mut self.measured {
            Some(measured) if on => measured.clear(),
            measured => *measured = on.then(Vec::new),
        }
    }

    /// What a statement has taken that has ended.
    pub fn measured(&self, step: usize) -> Option<Measured> {
        let measured = self.measured.as_ref()?;
        let is_it = |m: &&Measured| m.step == step && m.ended;
        // Mostly each step has one entry, in order: a long pipeline must not be searched for each of its steps.
        measured.get(step).filter(is_it).or_else(|| measured.iter().rev().find(is_it)).copied()
    }

    fn measure_begin(&mut self, step: usize) {
        let Some(measured) = &mut self.measured else { return };
        let is_open = |m: &Measured| m.step == step && !m.ended;
        let begun = if self.runs_again { measured.iter().any(is_open) } else { measured.last().is_some_and(is_open) };
        if !begun {
            measured.push(Measured::begun(step));
        }
    }

    fn measure_end(&mut self, step: usize, tag: &Tag, with_time: bool) {
        let Some(measured) = &mut self.measured else { return };
        let (rows, verb) = (tag.rows.unwrap_or(0), tag.verb);
        match measured.iter_mut().rev().find(|m| m.step == step && !m.ended) {
            Some(m) => {
                let time = with_time.then(|| m.begun.elapsed());
                *m = Measured { time, rows, verb, ended: true, ..*m };
            }
            None => measured.push(Measured { rows, verb, ended: true, ..Measured::begun(step) }),
        }
    }

    /// Notices that are less severe are not sent from now on (`client_min_messages`).
    pub fn set_least_severity(&mut self, least: Severity) {
        self.least_severity = least;
    }

    /// No result from now on may be larger.
    pub fn set_result_limits(&mut self, limits: ResultLimits) {
        self.result_limits = limits;
    }

    /// The bytes that are ready to be sent.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// The buffer for answers that need no statement to run; they follow the steps added so far.
    pub(crate) fn script(&mut self) -> &mut Vec<u8> {
        &mut self.script
    }

    /// Adds an Execute to the batch.
    pub(crate) fn push_step(&mut self, formats: Formats, rows_max: usize) {
        self.steps.push(StepReply { formats, rows_max, script_end: self.script.len() });
    }

    pub(crate) fn set_simple(&mut self, simple: bool) {
        self.simple = simple;
        self.first_step = 0;
    }

    /// Numbers the statements that run next from `step` within the message or batch.
    pub fn start_at(&mut self, step: usize) {
        self.first_step = step;
        self.mark = self.position();
    }

    /// The current position, for [`Reply::back_to`].
    pub fn position(&self) -> ReplyMark {
        ReplyMark {
            answers: self.gone + self.out.len() as u64,
            script_done: self.script_done,
            suspended: self.suspended.len(),
        }
    }

    /// Drops the answers after `position`, except for those that have left.
    pub fn back_to(&mut self, position: ReplyMark) {
        self.mark = position;
        self.reset();
        self.cannot_go_back = false;
    }

    /// Whether answers after `position` have left.
    pub fn has_sent_since(&self, position: ReplyMark) -> bool {
        position.answers < self.gone
    }

    /// Ends statements with an error as soon as the unsent answers are larger than this; `None` for no such bound.
    pub fn bound_unsent(&mut self, bytes_max: Option<usize>) {
        self.out_bytes_max = bytes_max.unwrap_or(usize::MAX);
        self.overflowed = false;
    }

    /// Whether a statement failed because of [`Reply::bound_unsent`].
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// The next statement's rows are COPY data in this format.
    pub fn copy_out(&mut self, format: CopyFormat) {
        self.copy = Some(CopyWriter::new(format));
    }

    /// Full buffers go to `stream` from now on; `None` lets them grow again.
    pub fn set_stream(&mut self, stream: Option<Stream>) {
        self.stream = stream;
    }

    /// Adds a NoticeResponse here.
    pub fn notice(&mut self, severity: &str, notice: &SqlError) {
        if Severity::named(severity) >= self.least_severity {
            backend::notice(&mut self.out, severity, notice);
        }
    }

    /// Answers a statement that returns no rows and did not go through the engine.
    pub fn complete(&mut self, step: usize, tag: &Tag) {
        self.script_until(step);
        self.measure_end(step, tag, false);
        finish_command(&mut self.out, tag);
    }

    /// Copies out the script before step `step`.
    pub fn script_until(&mut self, step: usize) {
        if let Some(s) = self.steps.get(step) {
            let end = s.script_end;
            self.copy_script(end);
        }
    }

    fn copy_script(&mut self, end: usize) {
        if end > self.script_done {
            self.out.extend_from_slice(&self.script[self.script_done..end]);
            self.script_done = end;
        }
    }

    /// Copies out the rest of the script after all steps have been answered.
    pub(crate) fn finish(&mut self) {
        self.copy_script(self.script.len());
        self.clear_batch();
    }

    /// Handles the failure of step `step` (`None`: of the commit at the end). What came before it is answered; the rest
    /// is dropped.
    pub(crate) fn fail(&mut self, step: Option<usize>) {
        match step {
            Some(step) if !self.simple => self.script_until(step),
            Some(_) => {}
            None => self.copy_script(self.script.len()),
        }
        self.clear_batch();
    }

    fn clear_batch(&mut self) {
        self.script.clear();
        self.script_done = 0;
        self.steps.clear();
        self.first_step = 0;
        self.current = Current::default();
        self.copy = None;
        self.stream = None;
        self.cannot_go_back = false;
    }

    /// Portals suspended since the last call, by step.
    pub(crate) fn take_suspended(&mut self) -> Vec<(usize, Held)> {
        std::mem::take(&mut self.suspended)
    }

    /// Resets the buffers after `out` has been sent.
    pub(crate) fn sent(&mut self) {
        self.gone += self.out.len() as u64;
        self.out.clear();
        // Less than before: no limit refuses that.
        let _ = self.unsent.set(0);
        if self.out.capacity() > BUFFER_KEPT_BYTES_MAX {
            self.out.shrink_to(FLUSH_BYTES);
        }
    }

    fn data_row(&mut self, row: &dyn Row) -> SqlResult<()> {
        let Some(desc) = &self.current.desc else { return Err(SqlError::internal("a row outside a statement")) };
        static TEXT: Formats = Formats::Text;
        let (formats, rows_max) = match self.steps.get(self.current.step) {
            Some(step) if !self.simple => (&step.formats, step.rows_max),
            _ => (&TEXT, 0),
        };
        let start = self.out.len();
        let at = backend::open(&mut self.out, b'D');
        let columns = row.len().min(desc.columns.len());
        self.out.extend_from_slice(&(columns as u16).to_be_bytes());
        for (i, column) in desc.columns[..columns].iter().enumerate() {
            if let Err(error) = encode::field(&mut self.out, row.get(i), column, formats.is_binary(i), self.output) {
                self.out.truncate(start);
                return Err(error);
            }
        }
        backend::close(&mut self.out, at);
        self.current.rows += 1;
        self.current.bytes += (self.out.len() - start) as u64;
        if rows_max != 0 && self.current.rows > rows_max as u64 {
            let held = self.current.held.get_or_insert_with(|| Held::new(&self.memory));
            held.push(self.out.drain(start..))?;
        }
        Ok(())
    }

    fn flush_to_stream(&mut self) -> SqlResult<()> {
        match &mut self.stream {
            Some(stream) if self.out.len() >= FLUSH_BYTES => {
                self.gone += self.out.len() as u64;
                stream(&mut self.out)
            }
            _ => self.count_unsent(),
        }
    }

    /// Bounds the answers that cannot leave now.
    #[inline]
    fn count_unsent(&mut self) -> SqlResult<()> {
        if self.out.len() > self.out_bytes_max {
            self.overflowed = true;
            return Err(SqlError::internal("the answer is too large for this thread"));
        }
        self.unsent.set(self.out.len())
    }
}

fn finish_command(out: &mut Vec<u8>, tag: &Tag) {
    if tag.verb.is_empty() { backend::empty_query_response(out) } else { backend::command_complete(out, tag) }
}

/// 72000: a statement has to begin again on a newer snapshot, and the client has a part of its result.
#[cold]
fn answers_have_left() -> SqlError {
    SqlError::new(SqlState::SNAPSHOT_TOO_OLD, "snapshot too old")
        .with_detail("A part of the result was sent before the snapshot was dropped.")
        .with_hint("Run the query again while less is written, or raise scratch_bytes_max.")
}

impl Sink for Reply {
    fn begin(&mut self, step: usize, desc: &Arc<StatementDesc>) {
        let step = self.first_step + step;
        self.script_until(step);
        self.measure_begin(step);
        self.current = Current { step, desc: Some(desc.clone()), ..Current::default() };
        match &mut self.copy {
            Some(copy) => copy.begin(&mut self.out, &desc.columns),
            None if self.simple && desc.returns_rows() => {
                backend::row_description(&mut self.out, &desc.columns, &Formats::Text)
            }
            None => {}
        }
    }

    fn row(&mut self, row: &dyn Row) -> SqlResult<()> {
        match (&mut self.copy, &self.current.desc) {
            (Some(copy), Some(desc)) => {
                let start = self.out.len();
                copy.row(&mut self.out, row, &desc.columns, self.output);
                self.current.rows += 1;
                self.current.bytes += (self.out.len() - start) as u64;
            }
            _ => self.data_row(row)?,
        }
        self.result_limits.check(self.current.rows, self.current.bytes)?;
        if self.cannot_go_back {
            return Err(answers_have_left());
        }
        self.flush_to_stream()
    }

    fn end(&mut self, tag: &Tag) {
        self.measure_end(self.current.step, tag, true);
        if self.copy.take().is_some() {
            backend::copy_done(&mut self.out);
            backend::command_complete(&mut self.out, &Tag { verb: "COPY", rows: Some(self.current.rows) });
            return;
        }
        let rows_max = self.steps.get(self.current.step).map_or(0, |s| s.rows_max);
        if rows_max != 0 && self.current.rows >= rows_max as u64 {
            let held = self.current.held.take().unwrap_or_else(|| Held::new(&self.memory));
            backend::portal_suspended(&mut self.out);
            self.suspended.push((self.current.step, held.ended(tag.verb)));
        } else {
            finish_command(&mut self.out, tag);
        }
    }

    fn recorded(&mut self, bytes: u64, images: u64) {
        let ended = self.measured.as_mut().and_then(|all| all.iter_mut().rev().find(|m| m.ended));
        if let Some(measured) = ended {
            measured.recorded = (bytes, images);
        }
    }

    fn keep(&mut self) {
        self.mark = self.position();
    }

    fn reset(&mut self) {
        if let Some(measured) = &mut self.measured {
            // They run again; one that was still running has begun before.
            measured.retain(|m| !m.ended || m.step < self.first_step);
            self.runs_again = true;
        }
        let ReplyMark { answers, script_done, suspended } = self.mark;
        self.cannot_go_back = answers < self.gone;
        self.out.truncate(answers.saturating_sub(self.gone) as usize);
        if !self.cannot_go_back {
            self.script_done = script_done;
        }
        self.suspended.truncate(suspended);
        self.current = Current::default();
    }
}
