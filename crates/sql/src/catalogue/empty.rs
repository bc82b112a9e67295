//! Tables of PostgreSQL's catalogue that clients ask for and that have no rows here, with the columns they name.

use super::table::CatalogTable;
use crate::types::more;
use holdfast_types::desc::oid;

const fn empty(name: &'static str, columns: &'static [(&'static str, u32)]) -> CatalogTable {
    CatalogTable { schema: "pg_catalog", name, columns, always_empty: true, rows: |_| Vec::new() }
}

const O: u32 = oid::OID;
const N: u32 = oid::NAME;
const T: u32 = oid::TEXT;
const B: u32 = oid::BOOL;
const C: u32 = oid::CHAR;
const I2: u32 = oid::INT2;
const I4: u32 = oid::INT4;
const NODE: u32 = more::PG_NODE_TREE;
const TA: u32 = more::TEXT_ARRAY;

pub const TABLES: &[CatalogTable] = &[
    empty(
        "pg_cast",
        &[("oid", O), ("castsource", O), ("casttarget", O), ("castfunc", O), ("castcontext", C), ("castmethod", C)],
    ),
    empty("pg_conversion", &[("oid", O), ("conname", N), ("connamespace", O), ("condefault", B)]),
    empty("pg_enum", &[("oid", O), ("enumtypid", O), ("enumsortorder", oid::FLOAT4), ("enumlabel", N)]),
    empty(
        "pg_event_trigger",
        &[
            ("oid", O),
            ("evtname", N),
            ("evtevent", N),
            ("evtowner", O),
            ("evtfoid", O),
            ("evtenabled", C),
            ("evttags", TA),
        ],
    ),
    empty(
        "pg_foreign_data_wrapper",
        &[
            ("oid", O),
            ("fdwname", N),
            ("fdwowner", O),
            ("fdwhandler", O),
            ("fdwvalidator", O),
            ("fdwacl", more::ACLITEM_ARRAY),
            ("fdwoptions", TA),
        ],
    ),
    empty(
        "pg_foreign_server",
        &[
            ("oid", O),
            ("srvname", N),
            ("srvowner", O),
            ("srvfdw", O),
            ("srvtype", T),
            ("srvversion", T),
            ("srvacl", more::ACLITEM_ARRAY),
            ("srvoptions", TA),
        ],
    ),
    empty("pg_foreign_table", &[("ftrelid", O), ("ftserver", O), ("ftoptions", TA)]),
    empty("pg_inherits", &[("inhrelid", O), ("inhparent", O), ("inhseqno", I4), ("inhdetachpending", B)]),
    empty(
        "pg_matviews",
        &[
            ("schemaname", N),
            ("matviewname", N),
            ("matviewowner", N),
            ("hasindexes", B),
            ("ispopulated", B),
            ("definition", T),
        ],
    ),
    empty(
        "pg_opclass",
        &[("oid", O), ("opcname", N), ("opcnamespace", O), ("opcmethod", O), ("opcintype", O), ("opcdefault", B)],
    ),
    empty(
        "pg_operator",
        &[("oid", O), ("oprname", N), ("oprnamespace", O), ("oprleft", O), ("oprright", O), ("oprresult", O)],
    ),
    empty("pg_partitioned_table", &[("partrelid", O), ("partstrat", C), ("partnatts", I2), ("partdefid", O)]),
    empty(
        "pg_policy",
        &[
            ("oid", O),
            ("polname", N),
            ("polrelid", O),
            ("polcmd", C),
            ("polpermissive", B),
            ("polroles", more::OID_ARRAY),
            ("polqual", NODE),
            ("polwithcheck", NODE),
        ],
    ),
    empty(
        "pg_prepared_statements",
        &[("name", T), ("statement", T), ("prepare_time", oid::TIMESTAMPTZ), ("from_sql", B)],
    ),
    empty(
        "pg_proc",
        &[
            ("oid", O),
            ("proname", N),
            ("pronamespace", O),
            ("proowner", O),
            ("prolang", O),
            ("procost", oid::FLOAT4),
            ("prokind", C),
            ("prosecdef", B),
            ("proleakproof", B),
            ("proisstrict", B),
            ("proretset", B),
            ("provolatile", C),
            ("proparallel", C),
            ("pronargs", I2),
            ("prorettype", O),
            ("proargtypes", more::OIDVECTOR),
            ("proargnames", TA),
            ("proargmodes", more::CHAR_ARRAY),
            ("proallargtypes", more::OID_ARRAY),
            ("prosrc", T),
            ("proacl", more::ACLITEM_ARRAY),
        ],
    ),
    empty("pg_publication_namespace", &[("oid", O), ("pnpubid", O), ("pnnspid", O)]),
    empty(
        "pg_range",
        &[("rngtypid", O), ("rngsubtype", O), ("rngmultitypid", O), ("rngcollation", O), ("rngsubopc", O)],
    ),
    empty(
        "pg_rewrite",
        &[("oid", O), ("rulename", N), ("ev_class", O), ("ev_type", C), ("ev_enabled", C), ("is_instead", B)],
    ),
    empty("pg_rules", &[("schemaname", N), ("tablename", N), ("rulename", N), ("definition", T)]),
    empty("pg_seclabels", &[("objoid", O), ("classoid", O), ("objsubid", I4), ("provider", T), ("label", T)]),
    empty(
        "pg_statistic_ext",
        &[
            ("oid", O),
            ("stxrelid", O),
            ("stxname", N),
            ("stxnamespace", O),
            ("stxowner", O),
            ("stxstattarget", I4),
            ("stxkeys", more::INT2VECTOR),
            ("stxkind", more::CHAR_ARRAY),
            ("stxexprs", NODE),
        ],
    ),
    empty("pg_timezone_names", &[("name", T), ("abbrev", T), ("utc_offset", oid::INTERVAL), ("is_dst", B)]),
    empty("pg_ts_config", &[("oid", O), ("cfgname", N), ("cfgnamespace", O), ("cfgparser", O)]),
    empty("pg_user_mapping", &[("oid", O), ("umuser", O), ("umserver", O), ("umoptions", TA)]),
];
