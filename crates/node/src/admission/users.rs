//! The names of the operating system's users.

/// The name of a user; `None`: it has none, or the system's database of users cannot be asked, which is logged. Asking may
/// take time where users come from the network, so it is done on another thread.
pub async fn name(uid: u32) -> Option<String> {
    let asked = tokio::task::spawn_blocking(move || nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)));
    match asked.await {
        Ok(Ok(user)) => user.map(|user| user.name),
        Ok(Err(error)) => {
            tracing::warn!("the name of user {uid} cannot be found: {error}");
            None
        }
        Err(error) => {
            tracing::error!("the search for the name of user {uid} failed: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn root_has_a_name() {
        assert_eq!(super::name(0).await.as_deref(), Some("root"));
        assert_eq!(super::name(3_999_999_999).await, None);
    }
}
