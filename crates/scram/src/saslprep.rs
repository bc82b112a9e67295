//! SASLprep (RFC 4013): passwords that look the same have the same verifier, whatever the client's keyboard sends.
//!
//! The steps are PostgreSQL's and libpq's, which check the password as it is before the normalization; RFC 4013 checks it
//! afterwards. Otherwise clients of libpq could not log in with the passwords that the two treat differently. A password
//! that is prohibited is taken as it is, also as there.

use std::borrow::Cow;
use stringprep::tables;
use unicode_normalization::UnicodeNormalization;

/// The password that is given to PBKDF2.
pub(crate) fn prepared(password: &str) -> Cow<'_, str> {
    if password.is_ascii() {
        return Cow::Borrowed(password);
    }
    let mapped: Vec<char> = password
        .chars()
        .map(|c| if tables::non_ascii_space_character(c) { ' ' } else { c })
        .filter(|c| !tables::commonly_mapped_to_nothing(*c))
        .collect();
    if mapped.is_empty() || mapped.iter().copied().any(is_prohibited) || mixes_directions(&mapped) {
        return Cow::Borrowed(password);
    }
    Cow::Owned(mapped.into_iter().nfkc().collect())
}

/// RFC 4013, sections 2.3 and 2.5.
fn is_prohibited(c: char) -> bool {
    tables::non_ascii_space_character(c)
        || tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
        || tables::unassigned_code_point(c)
}

/// RFC 3454, section 6: a text with characters from right to left has none from left to right, and begins and ends with
/// the former.
fn mixes_directions(text: &[char]) -> bool {
    let is_right_to_left = |c: &char| tables::bidi_r_or_al(*c);
    text.iter().any(is_right_to_left)
        && (text.iter().any(|c| tables::bidi_l(*c))
            || !text.first().is_some_and(is_right_to_left)
            || !text.last().is_some_and(is_right_to_left))
}
