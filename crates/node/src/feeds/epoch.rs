//! Whether this trail has what a subscriber has (trap F5 of the design).
//!
//! A promotion, or a directory that was put back, can take back commits that a subscriber was sent where no standbys are named.
//! The trail then grows beyond the subscriber's position with other changes, which it would miss. So the slot's row has the
//! epoch of the trail in which the subscriber was last sent something. It is written before anything of that epoch is sent.
//!
//! | the position asked for | then |
//! |---|---|
//! | is not beyond what the slot has as confirmed | this trail has it: the same trail says so |
//! | the slot was last read in this server's epoch | it was sent by this server |
//! | a boxcar of a later epoch than the slot's begins in front of it | refused: in that epoch this trail ended before |
//! | no such boxcar does | this trail has it |
//!
//! What cannot be known: a subscriber that asks for nothing, as pg_recvlogical does (0/0), begins where the slot is and keeps what was
//! taken back; and once a slot was read so, its row has the new epoch, and another subscriber's old position is taken. A slot is
//! for one subscriber.
//!
//! Failure: 55000. A standby that lacks the row of the last START, too, can refuse a position that it does have: never the other way
//! round.

use super::boxcars::Boxcars;
use super::{Feeds, Reader};
use holdfast_engine::Database;
use holdfast_sites::slot::{Slot, UPDATE};
use holdfast_types::lsn::lsn_text;
use holdfast_types::{Level, Lsn, SqlError, SqlResult, SqlState};

impl Feeds {
    /// Refuses a position that the trail does not have in the epochs up to the slot's.
    pub fn check_epoch(&self, slot: &Slot, asked: u64) -> SqlResult<()> {
        if asked <= slot.confirmed.lsn().0 || slot.epoch == self.engine.trail().epoch() {
            return Ok(());
        }
        let mut boxcars = Boxcars::new(self, slot.restart.boxcar)?;
        while let Some(boxcar) = boxcars.next()? {
            if boxcar.lsn.0 >= asked {
                break;
            }
            if boxcar.epoch > slot.epoch {
                return Err(taken_back(asked, boxcar.lsn));
            }
        }
        Ok(())
    }

    /// Notes in the slot's row that its subscriber is sent what this epoch has. Returns the position that [`Feeds::limit`] must reach
    /// before anything is sent: a standby that has what was sent has the row, too.
    pub async fn enter_epoch(&self, db: &Database, slot: &Slot, reader: &Reader) -> SqlResult<Lsn> {
        let epoch = self.engine.trail().epoch();
        if slot.epoch == epoch {
            return Ok(Lsn(0));
        }
        let entered = Slot { epoch, ..slot.clone() };
        self.write(db, UPDATE, entered.positions(), Level::Local).await?;
        reader.enter(epoch);
        Ok(self.engine.shown())
    }
}

fn taken_back(asked: u64, end: Lsn) -> SqlError {
    let message = format!("requested starting point {} is not in this server's trail", lsn_text(asked));
    let detail = format!(
        "The subscriber has changes that this server lost when it took over, or when its directory was put back. Up to {} both have \
         the same.",
        lsn_text(end.0)
    );
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
        .with_detail(detail)
        .with_hint("Drop the slot, create it again, and copy the tables again.")
}
