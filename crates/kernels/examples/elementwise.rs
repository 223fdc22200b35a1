//! Times expressions: `cargo run --release -p plimsoll-kernels --example elementwise`.

use std::time::Instant;

use plimsoll_base::DataType;
use plimsoll_device::{Args, Prepared};
use plimsoll_kernels::expr::elementwise_on;
use plimsoll_kernels::simd::Isa;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, Reg, Scalar, UnaryOp};

/// Nanoseconds of one call on arguments of `bytes` each.
fn time(prepared: &Prepared, arguments: usize, bytes: usize) -> f64 {
    let mut memory: Vec<Vec<f64>> = (0..arguments).map(|_| vec![0.007_812_5; bytes.div_ceil(8) + 8]).collect();
    let pointers: Vec<*mut u8> =
        memory.iter_mut().map(|buffer| buffer.as_mut_ptr().cast::<u8>()).map(|p| p.wrapping_add(p.align_offset(64))).collect();
    let mut worker = vec![[0u64; 8]; prepared.per_worker as usize / 64 + 2];
    let pointer = worker.as_mut_ptr().cast::<u8>();
    let args = Args { pointers: &pointers, scratch: std::ptr::null_mut(), worker: pointer.wrapping_add(pointer.align_offset(64)) };
    let mut best = f64::INFINITY;
    let mut calls = 1;
    for _ in 0..12 {
        let start = Instant::now();
        for _ in 0..calls {
            // SAFETY: the arguments have as many bytes as `main` prepared the kernel for, at 64-byte boundaries.
            let _ = unsafe { prepared.kernel.run(0..prepared.chunks, &args) };
        }
        let taken = start.elapsed().as_nanos() as f64;
        best = best.min(taken / f64::from(calls));
        if taken < 2e7 {
            calls *= 2;
        }
    }
    best
}

fn expression(
    inputs: usize,
    build: impl FnOnce(&mut ExprBuilder, &[Reg]) -> plimsoll_base::Result<Vec<Reg>>,
) -> plimsoll_base::Result<Expr> {
    let mut builder = ExprBuilder::new();
    let mut operands = Vec::new();
    for _ in 0..inputs {
        operands.push(builder.input(DataType::Float)?);
    }
    let outputs = build(&mut builder, &operands)?;
    Ok(builder.finish(outputs))
}

fn main() -> plimsoll_base::Result<()> {
    let axpb = expression(3, |e, x| {
        let product = e.binary(BinaryOp::Mul, x[0], x[1])?;
        Ok(vec![e.binary(BinaryOp::Add, product, x[2])?])
    })?;
    let add = expression(2, |e, x| Ok(vec![e.binary(BinaryOp::Add, x[0], x[1])?]))?;
    let bias_relu = expression(2, |e, x| {
        let sum = e.binary(BinaryOp::Add, x[0], x[1])?;
        let zero = e.constant(Scalar::F32(0.0));
        Ok(vec![e.binary(BinaryOp::Maximum, sum, zero)?])
    })?;
    let one = |op: UnaryOp| expression(1, move |e, x| Ok(vec![e.unary(op, x[0])?]));
    let two = |op: BinaryOp| expression(2, move |e, x| Ok(vec![e.binary(op, x[0], x[1])?]));
    // w, m, v, g, rate -> w, m, v
    let adam = expression(5, |e, x| {
        let [b1, c1, b2, c2, epsilon] = [0.9, 0.1, 0.999, 0.001, 1e-7].map(|value| e.constant(Scalar::F32(value)));
        let (m1, m2) = (e.binary(BinaryOp::Mul, x[1], b1)?, e.binary(BinaryOp::Mul, x[3], c1)?);
        let m = e.binary(BinaryOp::Add, m1, m2)?;
        let square = e.unary(UnaryOp::Square, x[3])?;
        let (v1, v2) = (e.binary(BinaryOp::Mul, x[2], b2)?, e.binary(BinaryOp::Mul, square, c2)?);
        let v = e.binary(BinaryOp::Add, v1, v2)?;
        let root = e.unary(UnaryOp::Sqrt, v)?;
        let divisor = e.binary(BinaryOp::Add, root, epsilon)?;
        let step = e.binary(BinaryOp::Mul, x[4], m)?;
        let step = e.binary(BinaryOp::Div, step, divisor)?;
        Ok(vec![e.binary(BinaryOp::Sub, x[0], step)?, m, v])
    })?;
    for isa in Isa::available() {
        println!("{isa:?}");
        let full = |shape: &[u64], count: usize| vec![shape.to_vec(); count];
        let scalar = elementwise_on(isa, &axpb, &[], &full(&[], 3))?;
        println!("  a*x+b on scalars          {:9.1} ns", time(&scalar, 4, 4));
        let n = [8192u64];
        let small = |expr: &Expr| elementwise_on(isa, expr, &n, &full(&n, expr.inputs().len()));
        for (name, expr) in [
            ("add", add.clone()),
            ("maximum", two(BinaryOp::Maximum)?),
            ("less", two(BinaryOp::Less)?),
            ("div", two(BinaryOp::Div)?),
            ("pow", two(BinaryOp::Pow)?),
            ("sqrt", one(UnaryOp::Sqrt)?),
            ("floor", one(UnaryOp::Floor)?),
            ("exp", one(UnaryOp::Exp)?),
            ("log", one(UnaryOp::Log)?),
            ("log1p", one(UnaryOp::Log1p)?),
            ("expm1", one(UnaryOp::Expm1)?),
            ("tanh", one(UnaryOp::Tanh)?),
            ("sigmoid", one(UnaryOp::Sigmoid)?),
            ("erf", one(UnaryOp::Erf)?),
            ("is_nan", one(UnaryOp::IsNan)?),
        ] {
            let taken = time(&small(&expr)?, expr.inputs().len() + 1, 8192 * 4);
            println!("  {name:10} 8192           {taken:9.1} ns, {:6.3} ns an element", taken / 8192.0);
        }
        let big = [1u64 << 20];
        let taken = time(&elementwise_on(isa, &add, &big, &full(&big, 2))?, 3, 4 << 20);
        println!("  add 1Mi                  {taken:9.1} ns, {:6.1} GB/s", 12.0 * f64::from(1 << 20) / taken);
        for shape in [[512u64, 300], [512, 10], [8192, 64], [8192, 16]] {
            let taken =
                time(&elementwise_on(isa, &bias_relu, &shape, &[shape.to_vec(), vec![shape[1]]])?, 3, (shape[0] * shape[1] * 4) as usize);
            println!("  relu(x+bias) {shape:?}  {taken:9.1} ns, {:6.3} ns an element", taken / (shape[0] * shape[1]) as f64);
        }
        let shape = [784u64, 300];
        let mut operands = full(&shape, 4);
        operands.push(vec![]);
        let taken = time(&elementwise_on(isa, &adam, &shape, &operands)?, 8, 784 * 300 * 4);
        println!("  adam 784x300             {taken:9.1} ns, {:6.3} ns an element", taken / (784.0 * 300.0));
    }
    Ok(())
}
