//! Where each study comes from, and the paper's terms that a reader may not know.

use crate::StudyName;

impl StudyName {
    /// The paper that the study repeats, as a report names it.
    pub fn paper(self) -> &'static str {
        match self {
            StudyName::Authorization => {
                "The study of R. Carr, \u{201c}Best Practices: Using TMF to Implement Business Continuity/Disaster \
                 Recovery\u{201d} (Carr Scott Software), repeated on this machine."
            }
            StudyName::Interactive => {
                "The card authorization of R. Carr, \u{201c}Best Practices: Using TMF to Implement Business \
                 Continuity/Disaster Recovery\u{201d} (Carr Scott Software), sent as several messages, and TPC-B. The goals \
                 are the product\u{2019}s own."
            }
            StudyName::Commit => {
                "The study of FairCom\u{2019}s white paper \u{201c}Linux Performance and Safety Advisory\u{201d} (2021), \
                 repeated on this machine."
            }
            StudyName::Standby => {
                "The study of B. Gettys, \u{201c}Oracle Rdb Hot Standby Performance Test Results\u{201d} (Oracle, 1999), \
                 repeated on this machine."
            }
            StudyName::Speed => {
                "The card authorization of R. Carr (Carr Scott Software), TPC-B and single statements, driven by \
                 pgbench. The goals are the product\u{2019}s own."
            }
        }
    }
}

/// The names of the authorization study's configurations that come from the paper and explain nothing by themselves.
pub const AUTHORIZATION_TERMS: &str = "NAInsert is the paper\u{2019}s configuration with the option NONAUDITEDINSERT: inserts at the \
    end of the log are streamlined and, as with every unaudited file, may be lost in a crash. AutoTMF is an HP product that \
    starts and ends transactions for programs that start none; here it is Holdfast\u{2019}s automatic transactions.";
