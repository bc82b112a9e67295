//! VACUUM, as a handle sees it.

use crate::api::database::Database;
use crate::route::one_message::wait_until_exclusive;
use crate::state::database::closed;
use crate::state::queue::WriterCommand;
use holdfast_types::SqlResult;

impl Database {
    /// Compacts the database's file. Blocks until it is done; writers wait, readers do not.
    pub fn vacuum(&self) -> SqlResult<()> {
        let database = self.state();
        database.engine.refuse_on_standby("VACUUM")?;
        let (done, vacuumed) = crossbeam_channel::bounded(1);
        // Branches work on the old file.
        let _exclusive = wait_until_exclusive(database, database.lock_owner(None, None))?;
        database.send(WriterCommand::Vacuum { done })?;
        vacuumed.recv().map_err(|_| closed(&database.name))?
    }
}
