//! What a statement about subscriptions changes, by the role that runs it, and what has to be done at the publisher.
//!
//! The rules, and the order of the checks, are PostgreSQL's (`CreateSubscription`, `AlterSubscription`, `DropSubscription`). Nothing
//! here talks to a publisher. Where its tables are needed, [`work_out`] returns what to ask it for ([`Outcome::asked`]); the caller
//! asks, and has the statement worked out again with the answer.
//!
//! Failure: PostgreSQL's errors. In a database of SQLite's dialect 0A000.

use super::{connection, partition, tables};
use crate::context::Context;
use crate::privilege_statement::RoleName;
use crate::publications::Actor;
use crate::subscription_statement::{Alteration, Listing, SubscriptionStatement, WrittenOptions};
use holdfast_types::access::check::not_owner;
use holdfast_types::schema::Dialect;
use holdfast_types::subscription::{Subscription, SubscriptionOptions, Subscriptions};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::collections::BTreeMap;

/// A table that the publisher publishes.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteTable {
    pub schema: String,
    pub name: String,
    pub columns: Vec<String>,
    /// Its conditions in the publications, in PostgreSQL's SQL; none where one of them publishes all rows.
    pub conditions: Vec<String>,
}

/// The publisher's answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    pub tables: Vec<RemoteTable>,
    /// Publications that it does not have.
    pub unknown: Vec<String>,
}

/// What the publisher is asked for: the tables of these publications.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    pub connection: String,
    pub publications: Vec<String>,
}

/// What has to be done at the publisher: before the change is stored for a slot that is created, after it for one that is
/// dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum AtPublisher {
    #[default]
    Nothing,
    CreateSlot {
        connection: String,
        slot: String,
    },
    DropSlot {
        connection: String,
        slot: String,
    },
}

/// The subscriptions after a statement.
#[derive(Debug)]
pub struct Outcome {
    pub subscriptions: Subscriptions,
    /// Subscriptions and OIDs of new tables whose rows are not to be copied.
    pub copied: Vec<(u32, u32)>,
    /// What is reported to the client, with severities.
    pub notices: Vec<(&'static str, SqlError)>,
    pub at_publisher: AtPublisher,
    /// The publisher has to be asked first: nothing else of this counts.
    pub asked: Option<Asked>,
}

/// The subscriptions after the statement. `in_block`: it runs in a transaction block, or with other statements.
pub fn work_out(
    statement: &SubscriptionStatement,
    actor: &Actor<'_>,
    context: &Context<'_>,
    in_block: bool,
    published: Option<&Published>,
) -> SqlResult<Outcome> {
    if context.dialect == Dialect::Sqlite {
        return Err(SqlError::unsupported("a subscription in a database of SQLite's dialect"));
    }
    let outcome = Outcome {
        subscriptions: Subscriptions::clone(&context.schema.subscriptions),
        copied: Vec::new(),
        notices: Vec::new(),
        at_publisher: AtPublisher::Nothing,
        asked: None,
    };
    let mut work = Work { actor, context, in_block, published, outcome };
    match statement {
        SubscriptionStatement::Create { name, connection, publications, options } => {
            work.create(name, connection, publications, options)?;
        }
        SubscriptionStatement::Alter { name, change } => work.alter(name, change)?,
        SubscriptionStatement::Drop { name, if_exists } => work.drop(name, *if_exists)?,
        SubscriptionStatement::Comment(name) => work.comment(name)?,
    }
    Ok(work.outcome)
}

struct Work<'a> {
    actor: &'a Actor<'a>,
    context: &'a Context<'a>,
    in_block: bool,
    published: Option<&'a Published>,
    outcome: Outcome,
}

/// What of a refresh of the tables follows from the statement.
struct Refresh<'a> {
    copy_data: bool,
    /// Publications whose absence is reported.
    checked: &'a [String],
}

fn error(state: &'static str, message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState(state), message)
}

fn syntax(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, message)
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("subscription \"{name}\" does not exist"))
}

fn duplicate(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("subscription \"{name}\" already exists"))
}

impl<'a> Work<'a> {
    fn notice(&mut self, severity: &'static str, state: &'static str, message: impl Into<String>) {
        self.outcome.notices.push((severity, error(state, message)));
    }

    fn is_superuser(&self, role: u32) -> bool {
        self.actor.checker.roles.is_superuser(role)
    }

    /// 25001 in a transaction block.
    fn outside_block(&self, command: &str) -> SqlResult<()> {
        if !self.in_block {
            return Ok(());
        }
        let message = format!("{command} cannot run inside a transaction block");
        Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
    }

    /// The place of a subscription by name: 42704 if there is none, 42501 unless the role is its owner's.
    fn owned(&self, name: &str) -> SqlResult<usize> {
        let list = &self.outcome.subscriptions.list;
        let at = list.iter().position(|s| s.name == name).ok_or_else(|| undefined(name))?;
        let checker = &self.actor.checker;
        match checker.owns(&checker.acting(self.actor.role), list[at].owner) {
            true => Ok(at),
            false => Err(not_owner("subscription", name)),
        }
    }

    fn create(
        &mut self,
        name: &str,
        connection: &str,
        publications: &'a [String],
        options: &WrittenOptions,
    ) -> SqlResult<()> {
        let connects = options.connect.unwrap_or(true);
        let (enabled, create_slot, copy_data) = first_options(options)?;
        if create_slot {
            self.outside_block("CREATE SUBSCRIPTION ... WITH (create_slot = true)")?;
        }
        if !self.is_superuser(self.actor.role) {
            let message = "must be superuser to create subscriptions";
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        if self.outcome.subscriptions.by_name(name).is_some() {
            return Err(duplicate(name));
        }
        connection::check(connection)?;
        check_named_once(publications)?;
        let mut subscription = Subscription {
            number: self.outcome.subscriptions.next_number(),
            name: name.to_owned(),
            owner: self.actor.role,
            connection: connection.to_owned(),
            slot: options.slot_name.clone().unwrap_or_else(|| Some(name.to_owned())),
            publications: publications.to_vec(),
            options: SubscriptionOptions {
                enabled,
                copy_data,
                disable_on_error: options.disable_on_error.unwrap_or(false),
                synchronous_commit: options.synchronous_commit.unwrap_or_default(),
                partition: options.partition.unwrap_or(false),
            },
            skip: 0,
            tables: Vec::new(),
            conditions: BTreeMap::new(),
        };
        if connects {
            self.refresh(&mut subscription, &Refresh { copy_data, checked: publications })?;
        } else {
            let message = "tables were not subscribed, you will have to run ALTER SUBSCRIPTION ... REFRESH PUBLICATION to \
                           subscribe the tables";
            self.notice("WARNING", "01000", message);
        }
        if let (true, Some(slot)) = (create_slot, &subscription.slot) {
            let (connection, slot) = (connection.to_owned(), slot.clone());
            self.notice("NOTICE", "00000", format!("created replication slot \"{slot}\" on publisher"));
            self.outcome.at_publisher = AtPublisher::CreateSlot { connection, slot };
        }
        self.outcome.subscriptions.list.push(subscription);
        Ok(())
    }

    fn alter(&mut self, name: &str, change: &'a Alteration) -> SqlResult<()> {
        let at = self.owned(name)?;
        let mut subscription = self.outcome.subscriptions.list[at].clone();
        match change {
            Alteration::Rename(new) if self.outcome.subscriptions.by_name(new).is_some() => return Err(duplicate(new)),
            Alteration::Rename(new) => subscription.name.clone_from(new),
            Alteration::Owner(to) => self.give(&mut subscription, to)?,
            Alteration::Options(options) => set_options(&mut subscription, options)?,
            Alteration::Enable(true) if subscription.slot.is_none() => {
                return Err(error("55000", "cannot enable subscription that does not have a slot name"));
            }
            Alteration::Enable(enabled) => subscription.options.enabled = *enabled,
            Alteration::Connection(text) => {
                connection::check(text)?;
                subscription.connection.clone_from(text);
            }
            Alteration::Publications { how, names, options } => {
                self.list_publications(&mut subscription, *how, names, options)?;
            }
            Alteration::Refresh(options) => {
                if !subscription.options.enabled {
                    return Err(error(
                        "55000",
                        "ALTER SUBSCRIPTION ... REFRESH is not allowed for disabled subscriptions",
                    ));
                }
                self.outside_block("ALTER SUBSCRIPTION ... REFRESH")?;
                let copy_data = options.copy_data.unwrap_or(true);
                self.refresh(&mut subscription, &Refresh { copy_data, checked: &[] })?;
            }
            Alteration::Skip(_) if !self.is_superuser(self.actor.role) => {
                return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "must be superuser to skip transaction"));
            }
            Alteration::Skip(options) => subscription.skip = options.lsn.unwrap_or(0),
        }
        self.outcome.subscriptions.list[at] = subscription;
        Ok(())
    }

    /// SET, ADD or DROP PUBLICATION.
    fn list_publications(
        &mut self,
        subscription: &mut Subscription,
        how: Listing,
        names: &'a [String],
        options: &WrittenOptions,
    ) -> SqlResult<()> {
        check_named_once(names)?;
        let (of, before) = (&subscription.name, &mut subscription.publications);
        match how {
            Listing::Set => *before = names.to_vec(),
            Listing::Add => {
                if let Some(name) = names.iter().find(|name| before.contains(name)) {
                    let message = format!("publication \"{name}\" is already in subscription \"{of}\"");
                    return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
                }
                before.extend(names.iter().cloned());
            }
            Listing::Drop => {
                if let Some(name) = names.iter().find(|name| !before.contains(name)) {
                    return Err(error("42P17", format!("publication \"{name}\" is not in subscription \"{of}\"")));
                }
                before.retain(|name| !names.contains(name));
                if before.is_empty() {
                    return Err(error("42P17", "cannot drop all the publications from a subscription"));
                }
            }
        }
        if !options.refresh.unwrap_or(true) {
            return Ok(());
        }
        let (word, checked) = match how {
            Listing::Set => ("SET", names),
            Listing::Add => ("ADD", names),
            Listing::Drop => ("DROP", &[][..]),
        };
        if !subscription.options.enabled {
            let instead = format!("ALTER SUBSCRIPTION ... {word} PUBLICATION ... WITH (refresh = false)");
            let end = if how == Listing::Set { "." } else { " instead." };
            return Err(error("55000", "ALTER SUBSCRIPTION with refresh is not allowed for disabled subscriptions")
                .with_hint(format!("Use {instead}{end}")));
        }
        self.outside_block("ALTER SUBSCRIPTION with refresh")?;
        let copy_data = options.copy_data.unwrap_or(true);
        self.refresh(subscription, &Refresh { copy_data, checked })
    }

    /// Gives the subscription the tables that the publisher publishes now.
    fn refresh(&mut self, subscription: &mut Subscription, refresh: &Refresh<'_>) -> SqlResult<()> {
        let Some(published) = self.published else {
            let (connection, publications) = (subscription.connection.clone(), subscription.publications.clone());
            self.outcome.asked = Some(Asked { connection, publications });
            return Ok(());
        };
        let unknown = published.unknown.iter().filter(|name| refresh.checked.contains(name));
        let unknown: Vec<String> = unknown.map(|name| format!("\"{name}\"")).collect();
        if !unknown.is_empty() {
            let (word, verb) = if unknown.len() == 1 { ("publication", "does") } else { ("publications", "do") };
            let message = format!("{word} {} {verb} not exist on the publisher", unknown.join(", "));
            self.notice("WARNING", "42704", message);
        }
        let before = std::mem::take(&mut subscription.tables);
        subscription.conditions.clear();
        for remote in &published.tables {
            let here = self.context.schema.table_among(false, &remote.name).map(|t| t.oid);
            let oid = match here.filter(|oid| remote.schema == "public" && before.contains(oid)) {
                Some(oid) => oid,
                None => {
                    let all = &self.outcome.subscriptions;
                    let oid = tables::target(remote, self.context, all, subscription.number)?;
                    if !refresh.copy_data {
                        self.outcome.copied.push((subscription.number, oid));
                    }
                    oid
                }
            };
            if subscription.options.partition {
                let condition = partition::condition(remote, oid, self.context)?;
                partition::refuse_published(oid, &condition, &subscription.name, self.context.schema)?;
                subscription.conditions.insert(oid, condition);
            }
            let place = subscription.tables.partition_point(|t| *t < oid);
            if subscription.tables.get(place) != Some(&oid) {
                subscription.tables.insert(place, oid);
            }
        }
        Ok(())
    }

    /// OWNER TO.
    fn give(&self, subscription: &mut Subscription, to: &RoleName) -> SqlResult<()> {
        let new = self.actor.role_named(to)?;
        if new != subscription.owner {
            check_may_own(&subscription.name, self.is_superuser(new))?;
        }
        subscription.owner = new;
        Ok(())
    }

    fn drop(&mut self, name: &str, if_exists: bool) -> SqlResult<()> {
        let at = match self.owned(name) {
            Err(e) if if_exists && e.state() == SqlState::UNDEFINED_OBJECT => {
                self.notice("NOTICE", "00000", format!("subscription \"{name}\" does not exist, skipping"));
                return Ok(());
            }
            at => at?,
        };
        if let Subscription { connection, slot: Some(slot), .. } = &self.outcome.subscriptions.list[at] {
            let (connection, slot) = (connection.clone(), slot.clone());
            self.outside_block("DROP SUBSCRIPTION")?;
            self.notice("NOTICE", "00000", format!("dropped replication slot \"{slot}\" on publisher"));
            self.outcome.at_publisher = AtPublisher::DropSlot { connection, slot };
        }
        self.outcome.subscriptions.list.remove(at);
        Ok(())
    }

    fn comment(&mut self, name: &str) -> SqlResult<()> {
        self.owned(name)?;
        self.notice("WARNING", "0A000", "COMMENT has no effect: comments are not stored");
        Ok(())
    }
}

/// 42501 for an owner that is not a superuser.
pub fn check_may_own(subscription: &str, superuser: bool) -> SqlResult<()> {
    if superuser {
        return Ok(());
    }
    let message = format!("permission denied to change owner of subscription \"{subscription}\"");
    Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
        .with_hint("The owner of a subscription must be a superuser."))
}

/// Whether a new subscription is enabled, creates its slot and copies; 42601 for options that exclude each other.
fn first_options(options: &WrittenOptions) -> SqlResult<(bool, bool, bool)> {
    let exclusive = |a: &str, b: &str| syntax(format!("{a} and {b} are mutually exclusive options"));
    let connects = options.connect.unwrap_or(true);
    let written =
        [(options.enabled, "enabled"), (options.create_slot, "create_slot"), (options.copy_data, "copy_data")];
    if !connects && let Some((_, name)) = written.iter().find(|(value, _)| *value == Some(true)) {
        return Err(exclusive("connect = false", &format!("{name} = true")));
    }
    let [enabled, create_slot, copy_data] = written.map(|(value, _)| value.unwrap_or(connects));
    if options.slot_name == Some(None) {
        let needs_slot = [(options.enabled, enabled, "enabled"), (options.create_slot, create_slot, "create_slot")];
        for (written, on, name) in needs_slot {
            match (on, written) {
                (false, _) => {}
                (true, Some(_)) => return Err(exclusive("slot_name = NONE", &format!("{name} = true"))),
                (true, None) => {
                    let message = format!("subscription with slot_name = NONE must also set {name} = false");
                    return Err(syntax(message));
                }
            }
        }
    }
    Ok((enabled, create_slot, copy_data))
}

/// ALTER SUBSCRIPTION ... SET (...).
fn set_options(subscription: &mut Subscription, options: &WrittenOptions) -> SqlResult<()> {
    if let Some(slot) = &options.slot_name {
        if slot.is_none() && subscription.options.enabled {
            return Err(error("55000", "cannot set slot_name = NONE for enabled subscription"));
        }
        subscription.slot.clone_from(slot);
    }
    let before = subscription.options;
    subscription.options = SubscriptionOptions {
        disable_on_error: options.disable_on_error.unwrap_or(before.disable_on_error),
        synchronous_commit: options.synchronous_commit.unwrap_or(before.synchronous_commit),
        ..before
    };
    Ok(())
}

/// 42710 for a publication that a list names twice.
fn check_named_once(publications: &[String]) -> SqlResult<()> {
    for (at, name) in publications.iter().enumerate() {
        if publications[..at].contains(name) {
            let message = format!("publication name \"{name}\" used more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
    }
    Ok(())
}
