//! What is listed as cheap is cheap: every such function is called with its largest results.

use holdfast_sql::functions;
use holdfast_types::{Cost, Value};

/// As long as the arguments of one call may be where other sessions wait for it.
const ARGUMENT_BYTES: usize = 8 << 10;

/// The longest result of a linear function: encodings and quotes multiply by less than this, and `'1e16000'` is a number.
const LINEAR_RESULT_BYTES_MAX: usize = 4 * ARGUMENT_BYTES + (160 << 10);

/// The longest result of a constant function: a number or the name of a type.
const CONSTANT_RESULT_BYTES_MAX: usize = 400;

/// Values of which one or the other makes a function return much.
fn pool(bytes: usize) -> Vec<Value> {
    let text = |t: &str| Value::Text(t.repeat(bytes.div_ceil(t.len())));
    let mut pool: Vec<Value> =
        [0, 1, -1, 2, 3, 25, 1_000, 131_072, 10_485_760, i64::from(i32::MAX), i64::MAX, i64::MIN]
            .map(Value::Int)
            .into();
    pool.extend([1e308, -1e-300, 0.5].map(Value::Real));
    pool.extend(
        ["", "x", "hex", "base64", "escape", "2001-02-03 04:05:06", "1 year", "1e16000", "1.5"]
            .map(|t| Value::Text(t.into())),
    );
    pool.extend([text("x"), text("9"), text("'"), text("\\"), text("ß"), text("1 "), Value::Blob(vec![0; bytes])]);
    pool.push(Value::Null);
    pool
}

/// Every choice of `n` of the values.
fn choices(pool: &[Value], n: usize) -> Vec<Vec<&Value>> {
    (0..n).fold(vec![Vec::new()], |choices, _| {
        choices.iter().flat_map(|choice| pool.iter().map(|v| [choice.as_slice(), &[v]].concat())).collect()
    })
}

/// The arguments of hf_cast: value, type and modifier before, type and modifier after, explicit.
fn casts(pool: &[Value]) -> Vec<Vec<Value>> {
    let types = [
        16, 17, 20, 21, 23, 25, 26, 114, 700, 701, 869, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 1700, 2950,
        3802, 3220,
    ];
    // numeric(100, 10); for the others a long text.
    let modifiers = [-1, 4 + (100 << 16 | 10)];
    let mut casts = Vec::new();
    for value in pool {
        for (to, modifier) in types.iter().flat_map(|to| modifiers.map(|m| (*to, m))) {
            for from in [25, 1700, 23, 17] {
                casts.push([&[value.clone()][..], &[from, -1, to, modifier, 1].map(Value::Int)].concat());
            }
        }
    }
    casts
}

#[test]
fn every_cheap_function_has_a_bounded_result() {
    // Of this thread only: other tests of the process say why they fail.
    let (quiet, before) = (std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != quiet {
            before(info);
        }
    }));
    let (mut cheap, mut calls, mut too_long) = (0, 0, Vec::new());
    for function in functions() {
        let max = match function.cost {
            Cost::Unbounded => continue,
            Cost::Constant => CONSTANT_RESULT_BYTES_MAX,
            Cost::Linear => LINEAR_RESULT_BYTES_MAX,
        };
        cheap += 1;
        let arguments = if function.args < 0 { 3 } else { function.args as usize };
        // Together they are as long as they may be.
        let pool = pool(ARGUMENT_BYTES / arguments.max(1));
        let choices: Vec<Vec<Value>> = match function.name {
            "hf_cast" => casts(&pool),
            // The last of four are numbers and short words.
            _ if arguments > 3 => choices(&pool, 3)
                .into_iter()
                .flat_map(|c| {
                    ["1", "x"]
                        .map(|last| c.iter().copied().cloned().chain([Value::Text(last.into())]).collect::<Vec<_>>())
                })
                .chain(choices(&pool, 3).into_iter().map(|c| c.into_iter().cloned().chain([Value::Int(1)]).collect()))
                .collect(),
            _ => choices(&pool, arguments).into_iter().map(|c| c.into_iter().cloned().collect()).collect(),
        };
        for choice in choices {
            let arguments: Vec<_> = choice.iter().map(Value::as_ref).collect();
            calls += 1;
            // A panic is an error of the statement: some of these arguments are impossible after the translation.
            match std::panic::catch_unwind(|| function.call(&arguments)) {
                Ok(Ok(value)) if value.bytes() > max => too_long.push((function.name, value.bytes(), max)),
                _ => {}
            }
        }
    }
    drop(std::panic::take_hook());
    println!("{cheap} cheap functions, {calls} calls");
    assert!(cheap > 80, "{cheap}");
    too_long.dedup_by_key(|(name, ..)| *name);
    assert!(too_long.is_empty(), "{too_long:?}");
}

#[test]
fn what_multiplies_its_arguments_is_not_cheap() {
    let of = |name: &str| functions().find(|f| f.name == name).unwrap_or_else(|| panic!("{name}")).cost;
    for name in
        ["hf_repeat", "hf_pad", "hf_rpad", "hf_replace", "hf_array_fill", "hf_regex", "hf_like", "hf_sleep_slice"]
    {
        assert_eq!(of(name), Cost::Unbounded, "{name}");
    }
    for name in ["hf_int4", "hf_add", "hf_chr"] {
        assert_eq!(of(name), Cost::Constant, "{name}");
    }
    for name in ["hf_cast", "hf_substr", "hf_num_add", "hf_md5"] {
        assert_eq!(of(name), Cost::Linear, "{name}");
    }
}
