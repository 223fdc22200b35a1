//! Folded variables of a model whose values are in files: the originals go, and come again where something asks for them.

use plimsoll::builder::Initializer;
use plimsoll::graph::AttrValue;
use plimsoll::{Bytes, Code, DataType, Devices, HostTensor, Options, PartialShape, Session, Values};

const WIDTH: u64 = 256;

fn numbers(shape: &[u64], step: f32) -> HostTensor {
    let count: u64 = shape.iter().product();
    HostTensor::from_slice(shape.to_vec(), &(0..count).map(|i| step * ((i * 7 + 3) % 11) as f32 - 0.2).collect::<Vec<_>>()).unwrap()
}

/// `y` is a product of `x` with a filter, times a scale, plus an offset; `z` another one of the same filter.
fn session(freeze: bool, limit: Option<Bytes>, checkpoint: Option<&std::path::Path>) -> plimsoll::Result<(Devices, Session)> {
    let options = Options::new().intra_op(1).freeze(freeze);
    let devices = Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &format!("{}B", limit.0))))?;
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(WIDTH)]))).build()?;
    let variable = |b: &mut plimsoll::builder::GraphBuilder, name: &str, shape: &[u64], step| {
        b.get_variable(name, DataType::Float, shape.to_vec(), &Initializer::Value(numbers(shape, step))).map(|variable| variable.value)
    };
    let w = variable(&mut b, "w", &[WIDTH, WIDTH], 0.01)?;
    let [scale, offset] = [variable(&mut b, "scale", &[WIDTH], 0.1)?, variable(&mut b, "offset", &[WIDTH], 0.2)?];
    let product = b.matmul(x, w).build()?;
    let scaled = b.mul(product, scale).build()?;
    b.add(scaled, offset).name("y").build()?;
    let other = b.op("MatMul").inputs([x, w]).attr("transpose_b", AttrValue::Bool(true)).build()?;
    b.relu(other).name("z").build()?;
    b.identity(w).name("same").build()?;
    b.global_variables_initializer()?;
    let values = Values::default().with_checkpoint(checkpoint);
    let y = b.graph().tensor("y")?;
    b.identity(y).name("result").build()?;
    Ok((devices.clone(), devices.session_with(b.finish(), &values, Vec::new())?))
}

fn run(session: &Session) -> plimsoll::Result<Vec<f32>> {
    session.run(&[("x", numbers(&[2, WIDTH], 0.05))], &["result"], &[])?[0].to_vec()
}

#[track_caller]
fn assert_near(got: &[f32], want: &[f32]) {
    let largest = want.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() <= 1e-5 * largest) && got.len() == want.len());
}

#[test]
fn originals_go_where_files_have_them() {
    let folder = std::env::temp_dir().join(format!("plimsoll-freeze-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let prefix = folder.join("first");
    let (_, plain) = session(false, None, None).unwrap();
    plain.run(&[], &[], &["init"]).unwrap();
    plain.save(&prefix).unwrap();
    let want = run(&plain).unwrap();

    let (_, frozen) = session(true, None, Some(&prefix)).unwrap();
    let x = numbers(&[2, WIDTH], 0.05);
    let limit = frozen.plan(&[("x", x.clone())], &["result"], &[]).unwrap().minimum_limit();
    let filter = WIDTH * WIDTH * 4;
    assert!(limit >= Bytes(2 * filter) && limit < Bytes(2 * filter + (64 << 10) + 16384), "{limit}: the filter, and what it is made of");
    let (devices, frozen) = session(true, Some(limit), Some(&prefix)).unwrap();
    assert_near(&run(&frozen).unwrap(), &want);
    assert_eq!(devices.report()[0].peak, limit);
    let (_, less) = session(true, Some(limit - Bytes(1)), Some(&prefix)).unwrap();
    assert_eq!(run(&less).unwrap_err().code(), Code::ResourceExhausted);

    frozen.release_unused();
    assert!(devices.memory_allocated("CPU:0").unwrap() < Bytes(filter + 16384), "one filter is left");
    assert!(frozen.variables().is_empty(), "{:?}", frozen.variables());
    assert_eq!(frozen.read_variable("scale").unwrap(), numbers(&[WIDTH], 0.1));

    let (_, frozen) = session(true, None, Some(&prefix)).unwrap();
    assert_near(&run(&frozen).unwrap(), &want);
    // Others read the original: it comes again.
    let z = |session: &Session| session.run(&[("x", x.clone())], &["z", "same"], &[]).unwrap();
    assert_eq!(z(&frozen), z(&plain));
    frozen.save(folder.join("again")).unwrap();
    for session in [&plain, &frozen] {
        session.write_variable("scale", &numbers(&[WIDTH], 0.3)).unwrap();
    }
    let changed = run(&plain).unwrap();
    assert_near(&run(&frozen).unwrap(), &changed);
    assert_ne!(changed, want);
    frozen.restore(folder.join("again")).unwrap();
    assert_near(&run(&frozen).unwrap(), &want);
    std::fs::remove_dir_all(folder).unwrap();
}
