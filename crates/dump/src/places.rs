//! Which places of dumps need an archive, so that no place's retention removes what a dump in another one needs.
//!
//! Each place has an id, in its object `place/id.json`. For each place the archive has objects `places/ID-RANDOM.json`: from which
//! segment on its dumps need which trail. The lowest number counts, where there are several.
//!
//! | command | does |
//! |---|---|
//! | create | before the first chunk: puts an object, unless one of its place already names that segment or an earlier one |
//! | forget, with an archive | puts an object of the dumps that stay, removes its place's others, and leaves what any other place needs |
//!
//! An object of another place is read, not that place: its dumps may be encrypted, or out of reach from this machine.
//!
//! Failure: a create that cannot reach the archive makes its dump and reports that the archive does not know of it. An object that
//! cannot be read keeps all of the archive, and is named. A place that was given up keeps what it needed until the operator removes
//! its objects, which are named.

use crate::archive_settings::ConfiguredArchive;
use crate::error::DumpError;
use crate::repository::Repository;
use crate::running::{now_unix_ms, random};
use crate::send::DumpPlan;
use holdfast_archive::{ArchiveLocation, Put, Store};
use holdfast_seams::RealDisk;
use holdfast_trail::TrailId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

const ID_NAME: &str = "place/id.json";
const DIRECTORY: &str = "places";
const BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Id {
    id: String,
}

/// What the dumps of a place need: the first segment of each trail, by the trail's id as text.
pub type Needs = BTreeMap<String, u32>;

#[derive(Serialize, Deserialize, PartialEq, Eq, Debug)]
struct Content {
    place: String,
    since_unix_ms: u64,
    needs: Needs,
}

/// An object about a place.
struct Registered {
    name: String,
    id: String,
    content: Content,
}

/// The places that an archive knows of.
pub struct Places<'a> {
    repository: &'a Repository,
    store: &'a dyn Store,
    own: String,
    registered: Vec<Registered>,
}

impl<'a> Places<'a> {
    /// Reads what is registered. The inner error says why the archive must stay as it is.
    pub fn read(repository: &'a Repository, store: &'a dyn Store) -> Result<Result<Places<'a>, String>, DumpError> {
        let own = own_id(repository)?;
        let mut registered = Vec::new();
        for listed in repository.wait(store.list(DIRECTORY))? {
            let name = listed.name;
            let Some(id) = id_of(&name) else { continue };
            // One that its place has replaced meanwhile.
            let Some(object) = repository.wait(store.get(&name, BYTES_MAX))? else { continue };
            match serde_json::from_slice(&object) {
                Ok(content) => registered.push(Registered { id: id.to_owned(), name, content }),
                Err(error) => {
                    let place = store.place();
                    return Ok(Err(format!(
                        "what a place of dumps needs is not known: {name} in {place} cannot be read: {error}"
                    )));
                }
            }
        }
        Ok(Ok(Places { repository, store, own, registered }))
    }

    fn of_own(&self) -> impl Iterator<Item = &Registered> {
        self.registered.iter().filter(|registered| registered.id == self.own)
    }

    /// Registers that a dump of this place needs a trail from a segment on.
    fn add(&self, trail: &str, first: u32) -> Result<(), DumpError> {
        let covers = |of: &Registered| of.content.needs.get(trail).is_some_and(|known| *known <= first);
        if self.of_own().any(covers) {
            return Ok(());
        }
        self.put(Needs::from([(trail.to_owned(), first)]))
    }

    /// Registers what the dumps of this place need, in place of what was registered before. No dump is being made there.
    pub fn replace(&self, needs: &Needs) -> Result<(), DumpError> {
        let is_current = |of: &Registered| of.content.needs == *needs;
        if self.of_own().count() == 1 && self.of_own().all(is_current) {
            return Ok(());
        }
        self.put(needs.clone())?;
        self.of_own().try_for_each(|of| self.repository.wait(self.store.remove(&of.name)))
    }

    fn put(&self, needs: Needs) -> Result<(), DumpError> {
        let random = random().map_err(|e| DumpError::Running(format!("cannot name this place: {e}")))?;
        let name = format!("{DIRECTORY}/{}-{random:016x}.json", self.own);
        let place = self.repository.place().to_owned();
        let content = Content { place, since_unix_ms: now_unix_ms(), needs };
        let object = serde_json::to_vec(&content).map_err(|e| DumpError::Encode(e.to_string()))?;
        self.repository.wait(self.store.put_new(&name, object.into())).map(|_| ())
    }

    /// The first segment of a trail that another place needs, that place, and its object.
    pub fn needed_by_others(&self, trail: &str) -> Option<(u32, &str, &str)> {
        let others = self.registered.iter().filter(|of| of.id != self.own);
        let needed = others.filter_map(|of| {
            of.content.needs.get(trail).map(|first| (*first, of.content.place.as_str(), of.name.as_str()))
        });
        needed.min()
    }
}

/// The id of this place; it gets one if it has none.
fn own_id(repository: &Repository) -> Result<String, DumpError> {
    let random = random().map_err(|e| DumpError::Running(format!("cannot name this place: {e}")))?;
    let made = Id { id: format!("{random:016x}") };
    let object = serde_json::to_vec(&made).map_err(|e| DumpError::Encode(e.to_string()))?;
    // Read first: an object store charges for a put that it refuses.
    let mut found = repository.get(ID_NAME, BYTES_MAX)?;
    if found.is_none() {
        if repository.put(ID_NAME, object.into())? == Put::Done {
            return Ok(made.id);
        }
        found = repository.get(ID_NAME, BYTES_MAX)?;
    }
    let found = found.ok_or_else(|| repository.missing(ID_NAME, "this place"))?;
    let read: Result<Id, _> = serde_json::from_slice(&found);
    let damaged = |what: String| DumpError::Damaged { name: ID_NAME.to_owned(), what };
    let Id { id } = read.map_err(|e| damaged(format!("it is not the id of a place: {e}")))?;
    match id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        true => Ok(id),
        false => Err(damaged(format!("{id:?} is not the id of a place"))),
    }
}

fn id_of(name: &str) -> Option<&str> {
    let (id, rest) = name.strip_prefix(DIRECTORY)?.strip_prefix('/')?.split_once('-')?;
    rest.ends_with(".json").then_some(id)
}

/// Registers the place of a dump that begins in the archive that its server's settings name. Returns why that was not possible:
/// the dump is made all the same.
pub fn register(repository: &Repository, plan: &DumpPlan) -> Option<String> {
    let configured = match ConfiguredArchive::in_files(&plan.files) {
        Ok(configured) if configured.place.is_empty() => return None,
        Ok(configured) => configured,
        Err(error) => return Some(error.to_string()),
    };
    let registering = || -> Result<Option<String>, DumpError> {
        let Some(location) = ArchiveLocation::parse(&configured.place)? else { return Ok(None) };
        let keys = repository.archive_keys(configured.is_encrypted);
        let store = location.open_with(Arc::new(RealDisk::new()), "register", keys)?;
        let places = match Places::read(repository, &*store)? {
            Ok(places) => places,
            Err(why) => return Ok(Some(why)),
        };
        let own = (plan.plan.shown / plan.plan.segment_bytes.max(1)) as u32;
        places.add(&TrailId(plan.plan.trail_id).to_string(), plan.plan.first_segment.min(own))?;
        Ok(None)
    };
    registering().unwrap_or_else(|error| Some(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_places() {
        assert_eq!(id_of("places/00000000000000ab-0123456789abcdef.json"), Some("00000000000000ab"));
        assert_eq!(id_of("places/x.json"), None);
        assert_eq!(id_of("places/00000000000000ab-01.json.n.new"), None);
    }
}
