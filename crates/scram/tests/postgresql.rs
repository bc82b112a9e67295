//! Verifiers that PostgreSQL 15.18 has stored, for passwords that SASLprep changes, prohibits or leaves alone.

use holdfast_scram::Verifier;

#[rustfmt::skip]
const STORED: [(&str, &str); 16] = [
    ("I\u{ad}X", "SCRAM-SHA-256$4096:hRq0Ev40euj3n7x6OQI4ZQ==$VUrAqMfpxZUAxQkyK9xvCD62jjalpUDcYBltKng0RI4=:4suetRFqRP8u42hHuUdJcB2TplSwa5lxZthi9q1J22E="),
    ("\u{2168}", "SCRAM-SHA-256$4096:LMSV+dnrqGtNuKlIFOEYkQ==$cP8w11TBnedS3CCoZEapAuApHx6dXqzfTfhBA7NZAas=:Lf3UjaALjZw0ve7STVCTSY/86ZOK3M/bvcH+bOufLA8="),
    ("a\u{a0}b", "SCRAM-SHA-256$4096:PF/81KYII5tuLItBjCpzeA==$3TnogWJlycJtUCKXMiaWRGpkWV3fNkuTeqItENdJEKU=:TnNwqev0BIq2qr7heSJL4bD5jnXzYMDo0Iw7nahQcD0="),
    ("a\u{7}b", "SCRAM-SHA-256$4096:SO8Cxo2Jf5Lh5COKxRPPmQ==$MdwpVi9/xR13RLC/0Melh5dC8tmnaOcQ5Ffv1207fQk=:50IoQDvXYDI11R2T+aP5RJL8NBS0xsXUciu74jhbfg0="),
    ("\u{627}1", "SCRAM-SHA-256$4096:5ZyE3m6h9Bn7V+XEg0dhtg==$pgch3qtRLARASQZGS+89nVjfOs/hyGm8kDp27qt8QPg=:n87c2Y+8Tc9g2lGQaDoYOugL3yqq7kHP4cEuxdPwt6c="),
    ("\u{ad}", "SCRAM-SHA-256$4096:FsP8024EaYej5DUzxCKa2Q==$3xhjlHtWv9U2ce+634M48rw7NeKEtFPTmyoKB8FsMgU=:PjGCApwmobTAxzvcRjyE66unCZMuYMg6JnlsIlSdZeo="),
    ("\u{200b}\u{2168}", "SCRAM-SHA-256$4096:SIvJ91MIOeiiSMlUm0forg==$OnqR2nm9UsQ443EO8tBmmrHoFNYbZwitxlDFLOuQ1MA=:mSXkzS+kAMIaHYawNXmET3WToKqu8w5wC5nGpHL3mtU="),
    ("\u{1f600}\u{2168}", "SCRAM-SHA-256$4096:LXyOMzo0NUMiI3awkmbqXQ==$BFdaKF4rsnMQSpi65wHjVWP5tGGbIwy5bjLEf0XzW/Q=:cMbv4V0zN78JRUs0lbiXeIqlf+gT0FyZ83BvFIepgL8="),
    ("\u{221}\u{2168}", "SCRAM-SHA-256$4096:fUlHThRdbEfK1k/J5A1EWA==$QskKQ4ImYqyoq+6qT5OT2rbqUzeJTHI/EHpTXxSYnAU=:b8t6HvIQ21sxknYtKRbRSSNf+Br2wFa+AcpXrTTPEew="),
    ("a\u{627}", "SCRAM-SHA-256$4096:OAbOUKm81s/LUK0gojK8lQ==$uZLAcAjcrqExsY1qitDdSARbdPNk3frnvEvTTrJWiKA=:TRLaqACC4MSVLCg6BpeTuiOl1mUWu9KpHqsHdeFRFrI="),
    ("\u{627}\u{2168}\u{627}", "SCRAM-SHA-256$4096:jDHiinu4lohWGUG7JLFugQ==$7dzj66G1Zp7Em2XAGtMYiAoxaJVIfY0VcBNjDUaAXsA=:hj5Sm1WTdAaakIl/IYFho3SKphUUv1wR1V4utygrLWQ="),
    ("\u{e000}\u{2168}", "SCRAM-SHA-256$4096:1hSOebhFn8p/P8yGEXwbJg==$sQzPVjvLSCjNOK39pPeKjyc27OxgEqZvn2ynZvpB1i4=:R5+sNDx+8qLYB/yyYSogU/Kzw0jbYYYDNC4l3LjlxaM="),
    ("\u{340}\u{2168}", "SCRAM-SHA-256$4096:5nH370HqV0EMVy9NsgOnZA==$P5DSi0AIFeYb2m55372l60VZfdsmryfU6AmkntfJ3dc=:olhmrIfoMxCNrQ7C35iN7GMNoiIEQO98Bq8rvF2aIew="),
    ("\u{fc5e}\u{2168}", "SCRAM-SHA-256$4096:PlOyQjEN1RSF+SKbn/5qxQ==$kgDfiB+fK6w3sbUfSqDE6qH6b48NzUmHOOBRsUosEzU=:uUgkuRRq+EWlwBUkdh4VqDsayQZp9NoFZZOsFhrtPcY="),
    ("\u{627}1\u{627}", "SCRAM-SHA-256$4096:HbXVk6V6AQE3y9GSR73nkw==$VQ6tBF3z7LkbUKo3yZwevzp9l3h7xhIMrxIk8E6JuTc=:7PWuM8jqn2i0c7ukxdwJ6VsGG8LrYphdeckbVQpNYWM="),
    ("\u{2126}\u{37a}", "SCRAM-SHA-256$4096:xqB2gjRJp6EGLEe0GgxCZw==$12id/9aXBUqvI5c/zIW/2FHpB5TX6Tr0Wtq07nWFWzM=:yxrOYCWWRUmVTg7byinLgAXGMuL+1NFGQ13D3eMwWuk="),
];

#[test]
fn verifiers_of_postgresql_accept_their_passwords() {
    for (password, stored) in STORED {
        let verifier = Verifier::parse(stored).unwrap();
        assert_eq!(verifier.to_string(), stored);
        assert!(verifier.accepts(password), "{}", password.escape_unicode());
        assert!(!verifier.accepts("b"));
    }
}
