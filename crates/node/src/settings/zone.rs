//! The values of TimeZone: names as PostgreSQL shows them, and offsets as numbers of hours.
//!
//! Failure: a zone whose time cannot be shown is refused, never ignored.

const HINT: &str = "Only UTC is supported.";

/// Names of zones that are always UTC.
const UTC: &[&str] = &[
    "UTC",
    "GMT",
    "Etc/UTC",
    "Etc/GMT",
    "Etc/GMT+0",
    "Etc/GMT-0",
    "Etc/GMT0",
    "Etc/Greenwich",
    "Etc/UCT",
    "Etc/Universal",
    "Etc/Zulu",
    "GMT+0",
    "GMT-0",
    "GMT0",
    "Greenwich",
    "UCT",
    "Universal",
    "Zulu",
    "+00:00",
    "-00:00",
];

/// The zone as SHOW returns it. The error is the hint to give.
pub fn checked(value: &str) -> Result<String, Option<&'static str>> {
    if let Ok(hours) = value.trim().parse::<f64>() {
        return match hours == 0.0 {
            true => Ok("<+00>-00".to_owned()),
            false => Err(Some(HINT)),
        };
    }
    let known = UTC.iter().find(|name| name.eq_ignore_ascii_case(value));
    known.map(|name| (*name).to_owned()).or_else(|| (value == "<+00>-00").then(|| value.to_owned())).ok_or(Some(HINT))
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn names_of_utc_are_kept_and_other_zones_refused() {
        assert_eq!(checked("etc/utc").as_deref(), Ok("Etc/UTC"));
        assert_eq!(checked("0").as_deref(), Ok("<+00>-00"));
        for other in ["Europe/Berlin", "-8", "EST5EDT", "", "Z"] {
            assert!(checked(other).is_err(), "{other}");
        }
    }
}
